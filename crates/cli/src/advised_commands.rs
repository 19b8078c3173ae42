//! Tests that every command exists that an error, a NEXT, an error page or the workload shell shows.
//!
//! In texts of the source a command ends at punctuation or at the first word that cannot belong to it; in an error page it is a code span.
//! NAME and {name} stand for values; their type is not checked, their number is.

use std::{fs, path::Path};

use clap::{
    Arg,
    error::{ContextKind, ContextValue, ErrorKind},
};
use regex::Regex;

use crate::help;

/// Values that texts give to positional arguments, besides placeholders.
const VALUES: [&str; 5] = ["rke2", "authority", "sealing", "task-signing", "train"];
/// Texts that begin like a command and are none: the purposes of derived keys, and the version.
const NO_COMMANDS: [&str; 4] =
    ["gpuaas authentication of records", "gpuaas documented`", "gpuaas id of sealing key", "gpuaas {version}"];
/// Verbs of kubectl that error pages use.
const KUBECTL_VERBS: [&str; 5] = ["delete", "describe", "edit", "get", "scale"];
/// The lines that the workload shell shows, each behind the source that has it. The shell's own tests keep the list current.
const SHELL_LINES: &str = "ui/src/text/commands.golden";
/// Flags of install.sh.
const INSTALL_FLAGS: [&str; 2] = ["--uninstall", "--force"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns every file below a folder with one of these extensions.
fn files(folder: &Path, extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if path.extension().and_then(|of| of.to_str()).is_some_and(|of| extensions.contains(&of)) {
            found.push((name, fs::read_to_string(&path).expect("a text")));
        }
    }
    found
}

/// Returns the texts of a source: without comments and tests, continued lines joined, cut at every line end.
fn texts(source: &str) -> Vec<String> {
    let product = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines =
        product.lines().filter(|line| !line.trim_start().starts_with("//") && !line.trim_start().starts_with('#'));
    let joined =
        Regex::new(r"\\\n\s*").expect("valid").replace_all(&lines.collect::<Vec<_>>().join("\n"), "").into_owned();
    joined.replace("\\n", "\n").lines().map(str::to_owned).collect()
}

fn is_placeholder(word: &str) -> bool {
    word.starts_with('{') || word.starts_with("$(") || word.chars().all(|of| of.is_ascii_uppercase() || of == '-')
}

/// Returns the words of the command that `text` begins with.
fn command_words(text: &str) -> Vec<String> {
    let mut command = &help::command();
    let mut words: Vec<String> = Vec::new();
    let mut takes_value = false;
    for word in text.split_whitespace() {
        let word = word.trim_start_matches('"');
        let quoted = word.split('"').next().unwrap_or_default();
        // A flag that is appended to the last word.
        let quoted = quoted.find('{').filter(|at| *at > 0).map_or(quoted, |at| &quoted[..at]);
        let bare = quoted.trim_end_matches(['.', ',', ';', ':', ')', '`', '\'']);
        let subcommand = command.find_subcommand(bare);
        let belongs = takes_value
            || subcommand.is_some()
            || words.is_empty()
            || bare.starts_with("--")
            || is_placeholder(bare)
            || VALUES.contains(&bare) && command.get_positionals().next().is_some();
        if !belongs || bare.is_empty() {
            break;
        }
        takes_value = !takes_value
            && bare.strip_prefix("--").is_some_and(|flag| {
                let all = command.get_arguments();
                all.filter(|of| of.get_long() == Some(flag)).any(|of| of.get_action().takes_values())
            });
        if let Some(of) = subcommand {
            command = of;
        }
        words.push(bare.to_owned());
        if bare.len() < word.len() {
            break;
        }
    }
    words
}

/// Returns why the command line refuses these words; `None` if it accepts them.
fn refusal(words: &[String]) -> Option<String> {
    let values = words.iter().map(|word| if word.starts_with('{') { "x" } else { word });
    let error = help::command().try_get_matches_from(std::iter::once("gpuaas").chain(values)).err()?;
    // A placeholder is no valid value of every type; a missing value is empty.
    let is_missing =
        matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    let is_accepted = match error.kind() {
        ErrorKind::DisplayHelp => true,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => !is_missing,
        _ => false,
    };
    (!is_accepted)
        .then(|| format!("gpuaas {}: {}", words.join(" "), error.to_string().lines().next().unwrap_or_default()))
}

/// Returns the words of a line of the shell, up to a redirection. No value in these lines contains a blank.
fn shell_words(line: &str) -> Vec<String> {
    line.split(' ').take_while(|word| *word != ">").map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// Returns why a placeholder misleads: it names another value than the one that the command line takes there. After a flag, the flag's own
/// name is right, too.
fn misnamed(words: &[String]) -> Option<String> {
    let mut whole = help::command();
    whole.build();
    let (mut command, mut flag): (_, Option<&Arg>) = (&whole, None);
    let mut positionals = command.get_positionals();
    for word in words {
        let taken = if let Some(flag) = flag.take() {
            Some(flag)
        } else if let Some(below) = command.find_subcommand(word) {
            command = below;
            positionals = command.get_positionals();
            None
        } else if let Some(long) = word.strip_prefix("--") {
            let mut all = command.get_arguments();
            flag = all.find(|of| of.get_long() == Some(long) && of.get_action().takes_values());
            None
        } else {
            positionals.next()
        };
        let Some(taken) = taken.filter(|_| word.chars().all(|of| of.is_ascii_uppercase())) else { continue };
        let names = taken.get_value_names().unwrap_or_default().iter().map(|name| name.as_str().to_owned());
        let names: Vec<String> = names.chain(taken.get_long().map(str::to_uppercase)).collect();
        if !names.contains(word) {
            return Some(format!("gpuaas {}: {word} stands for {}", words.join(" "), names.join(" or ")));
        }
    }
    None
}

/// Returns whether the arguments of kubectl begin with a verb, after the namespace if there is one.
fn is_kubectl_verb(arguments: &[String]) -> bool {
    let verb = match arguments {
        [flag, _namespace, verb, ..] if flag == "-n" => Some(verb),
        [verb, ..] => Some(verb),
        [] => None,
    };
    verb.is_some_and(|verb| KUBECTL_VERBS.contains(&verb.as_str()))
}

/// Returns the refusals of all commands in a text of the source.
fn refusals(text: &str) -> Vec<String> {
    let starts = text.match_indices("gpuaas ").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let is_word = before.is_none_or(|of| !of.is_alphanumeric() && !"-/.".contains(of));
        is_word && !NO_COMMANDS.iter().any(|none| text[*at..].starts_with(none))
    });
    starts.filter_map(|(at, start)| refusal(&command_words(&text[at + start.len()..]))).collect()
}

#[test]
fn every_command_in_a_text_of_the_programs_is_accepted() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let crates = ["agent", "api", "artifacts", "cli", "engine", "model", "planner", "server", "store", "trust"];
    let folders = crates.map(|name| format!("crates/{name}/src"));
    for folder in folders.into_iter().chain(["apps".to_owned()]) {
        for (name, source) in files(&root().join(folder), &["rs", "sh"]) {
            // Examples have a test of their own, and tests and this file contain wrong commands.
            if name.contains("examples")
                || name.contains("/tests/")
                || ["advised_commands.rs", "/tests.rs"].iter().any(|end| name.ends_with(end))
            {
                continue;
            }
            for text in texts(&source) {
                count += text.matches("gpuaas ").count();
                wrong.extend(refusals(&text).into_iter().map(|refusal| format!("{name}: {refusal}")));
            }
        }
    }
    assert!(count > 100, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_in_an_error_page_is_accepted() {
    let spans = Regex::new("`((?:gpuaas|kubectl|install\\.sh) [^`…]+)`").expect("valid");
    let mut wrong = Vec::new();
    let pages = files(&root().join("docs/errors"), &["md"]);
    for (name, page) in &pages {
        for span in spans.captures_iter(page) {
            let words: Vec<String> = span[1].split_whitespace().map(str::to_owned).collect();
            let (program, arguments) = words.split_first().expect("the pattern has a program");
            let refused = match program.as_str() {
                "gpuaas" => refusal(arguments),
                "kubectl" => (!is_kubectl_verb(arguments)).then(|| span[1].to_owned()),
                _ => (!arguments.iter().all(|flag| INSTALL_FLAGS.contains(&flag.as_str()))).then(|| span[1].to_owned()),
            };
            wrong.extend(refused.map(|refused| format!("{name}: {refused}")));
        }
    }
    assert!(pages.len() > 100 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_line_of_the_shell_is_accepted() {
    let list = fs::read_to_string(root().join(SHELL_LINES)).expect("the list of lines");
    let mut wrong = Vec::new();
    for line in list.lines() {
        let (source, command) = line.split_once(": gpuaas ").expect("a source and its line");
        let words = shell_words(command);
        wrong.extend(refusal(&words).or_else(|| misnamed(&words)).map(|refused| format!("{source}: {refused}")));
    }
    assert!(list.lines().count() > 50 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn placeholders_of_other_values_are_found() {
    for right in ["artifact import rke2 SOURCE --signature FILE", "node reset NODE --force --reason REASON > file"] {
        assert_eq!(misnamed(&shell_words(right)), None, "{right}");
    }
    for wrong in ["artifact import APP VERSION", "node show NAME", "allocation create --node PROJECT"] {
        assert!(misnamed(&shell_words(wrong)).is_some(), "{wrong}");
    }
}

#[test]
fn flags_of_install_sh_exist() {
    let script = fs::read_to_string(root().join("crates/api/src/routes/install/install.sh")).expect("the script");
    assert!(INSTALL_FLAGS.iter().all(|flag| script.contains(&format!("{flag})"))), "the script knows other flags");
}

#[test]
fn wrong_commands_are_found() {
    let none: Vec<String> = Vec::new();
    for right in [
        "reset it: gpuaas node reset {name} --force --reason TEXT",
        "(gpuaas server restore FILE); to start without its data: gpuaas server --reinitialize, which moves",
        "gpuaas server verify lists every row",
        "see `gpuaas keys list authority`",
        "gpuaas workload logs {workload} --member {member}",
        "the file of gpuaas-agent status",
        "see its nodes: gpuaas allocation list{flag}",
    ] {
        assert_eq!(refusals(right), none, "{right}");
    }
    for wrong in [
        "gpuaas workload resum {name}",
        "gpuaas workloads resume {name}",
        "print a new one: gpuaas node enroll",
        "gpuaas node reset NODE --forced",
        "gpuaas workload resume NAME NAME",
        "gpuaas node reset NODE --reason",
    ] {
        assert_eq!(refusals(wrong).len(), 1, "{wrong}");
    }
}
