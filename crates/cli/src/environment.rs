//! Reads `GPUAAS_*` variables. An empty one counts as unset, as for kubectl: scripts clear a variable by setting it to nothing.

use clap::{Command, builder::Resettable};

/// Returns the variable if it is set to a text.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Removes empty variables from the flags of a command and of those below it.
pub(crate) fn ignore_empty(command: Command) -> Command {
    let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(name) if is_empty(name) => argument.env(Resettable::Reset),
        Some(_) | None => argument,
    });
    command.mut_subcommands(ignore_empty)
}
