//! Reads `GPUAAS_*` variables. An empty one counts as unset, as for kubectl: scripts clear a variable by setting it to nothing. The server
//! alone refuses one that would have named its database (`store_url`).

use std::path::Path;

use clap::{Command, builder::Resettable};
use gpuaas_client::ClientError;
use gpuaas_trust::SecretText;

/// Returns the variable if it is set to a text.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the URL of the shared database from the file or from `GPUAAS_STORE_URL`. Never a flag: the URL may hold a password.
///
/// Unlike other variables, an empty one is refused: SQLite instead of a database whose URL was not filled in would be a new control plane.
pub(crate) fn store_url(file: Option<&Path>) -> anyhow::Result<Option<SecretText>> {
    let (from, text) = match file {
        Some(file) => (file.display().to_string(), std::fs::read_to_string(file)),
        None => {
            let variables = ["GPUAAS_STORE_URL", "GPUAAS_STORE_URL_FILE"];
            let set = variables.into_iter().find_map(|name| Some((name, std::env::var_os(name)?)));
            let Some((name, text)) = set else { return Ok(None) };
            (name.to_owned(), text.into_string().map_err(|_| std::io::ErrorKind::InvalidData.into()))
        }
    };
    let refused = |why: String| ClientError::InvalidSetting(format!("{from} {why}"));
    let text = text.map_err(|error| refused(format!("cannot be read: {error}")))?;
    let url = text.trim();
    if url.is_empty() {
        let next =
            "PostgreSQL needs the URL of its database there; for SQLite in the data directory, remove the setting";
        return Err(refused(format!("is empty: {next}")).into());
    }
    Ok(Some(SecretText::new(url.to_owned())))
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
