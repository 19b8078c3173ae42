//! The command line as its help shows it: the definitions with an example for every command.

use clap::{Args, Command, CommandFactory};
use clap_complete::ArgValueCandidates;
use gpuaas_model::ExitStatus;

use crate::{cli::Cli, color, completion, environment, examples::examples, target::Target};

/// Name of the command that shows the global flags.
const FLAGS: &str = "flags";
/// End of the help of every other command.
pub(crate) const FLAGS_HINT: &str = "\n\nGlobal flags: gpuaas help flags";

/// Returns the command line with its examples and its exit statuses.
pub(crate) fn command() -> Command {
    let command = environment::ignore_empty(with_examples(with_flags_page(with_completers(Cli::command())), ""));
    let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let statuses = ExitStatus::TABLE.iter().map(|(status, meaning)| format!("  {:>3}  {meaning}", *status as u8));
    let statuses = statuses.collect::<Vec<_>>().join("\n");
    command.long_about(format!("{long}\n\nExit status:\n{statuses}"))
}

/// Completes the values of global flags. Their definition cannot name what completes them: that reads these flags.
fn with_completers(command: Command) -> Command {
    command
        .mut_arg("context", |argument| argument.add(ArgValueCandidates::new(completion::contexts)))
        .mut_arg("project", |argument| argument.add(ArgValueCandidates::new(completion::projects)))
        .mut_arg("output", |argument| argument.add(ArgValueCandidates::new(completion::formats)))
}

/// Returns the command line that shells complete: a shell offers no hidden flag, and [`command`] hides the global ones.
pub(crate) fn completed_command() -> Command {
    with_completers(Cli::command())
}

/// Shows the global flags in the help of `gpuaas flags` alone: in that of every command they would be longer than its own.
fn with_flags_page(command: Command) -> Command {
    let hidden = command.mut_args(|argument| {
        let is_global = argument.is_global_set();
        argument.hide(is_global)
    });
    hidden.mut_subcommand(FLAGS, |flags| {
        let about = flags.get_about().cloned().unwrap_or_default();
        Target::augment_args(flags).about(about)
    })
}

/// Returns the help of `gpuaas flags`, for stdout.
pub(crate) fn flags() -> String {
    let mut command = command();
    command.build();
    let flags = command.find_subcommand_mut(FLAGS).expect("the command line has `flags`");
    color::styled(&flags.render_long_help())
}

/// Adds the examples of a command and of those below it. `path` is the command's name without `gpuaas`.
fn with_examples(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        with_examples(below, path.trim_start())
    });
    match examples().find(|(of, _)| *of == path) {
        Some((_, lines)) if path == FLAGS => command.after_help(section(lines)),
        Some((_, lines)) => command.after_help(format!("{}{FLAGS_HINT}", section(lines))),
        None => command,
    }
}

fn section(examples: &[(&str, &str)]) -> String {
    let lines: Vec<String> = examples.iter().map(|(purpose, line)| format!("  # {purpose}\n  {line}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paths of the visible commands, groups included.
    fn paths(command: &Command, path: &str) -> Vec<String> {
        let visible = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
        let below = visible.flat_map(|below| paths(below, format!("{path} {}", below.get_name()).trim_start()));
        std::iter::once(path.to_owned()).chain(below).collect()
    }

    #[test]
    fn every_command_has_an_example_and_every_example_a_command() {
        let named: Vec<&str> = examples().map(|(path, _)| *path).collect();
        assert_eq!(named, paths(&Cli::command(), ""));
        for (path, examples) in examples() {
            assert!(!examples.is_empty(), "{path}");
            for (_, line) in *examples {
                assert!(line.starts_with(format!("gpuaas {path}").trim_end()), "{path}: {line}");
            }
        }
    }

    #[test]
    fn global_flags_are_in_the_help_of_flags_alone() {
        let mut command = command();
        command.build();
        let node = command.find_subcommand_mut("node").expect("a command");
        let list = node.find_subcommand_mut("list").expect("a command").render_long_help().to_string();
        assert!(!list.contains("--idempotency-key") && list.contains("gpuaas help flags"), "{list}");
        assert!(flags().starts_with("Show the flags") && flags().contains("--idempotency-key"), "{}", flags());
        let parsed = command.try_get_matches_from(["gpuaas", "flags", "--project", "x"]);
        assert!(parsed.is_ok(), "{parsed:?}");
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        for (_, line) in examples().flat_map(|(_, examples)| *examples) {
            let arguments = line.split(' ').map(|word| word.trim_matches('\''));
            if let Err(error) = Cli::command().try_get_matches_from(arguments) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn every_help_starts_with_a_verb() {
        let nouns = ["A", "An", "The", "Help", "What", "Who", "Programs", "Kind", "List of"];
        let mut command = Cli::command();
        command.build();
        let mut all = vec![&command];
        while let Some(command) = all.pop() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let first = about.split(' ').next().unwrap_or_default();
            assert!(
                first.starts_with(char::is_uppercase) && !nouns.contains(&first),
                "{}: {about}",
                command.get_name()
            );
            all.extend(command.get_subcommands().filter(|below| !below.is_hide_set()));
        }
    }
}
