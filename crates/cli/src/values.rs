//! Parses numbers, addresses and paths from the command line, with messages for people.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

/// Parses a whole number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match is_number {
        true => format!("{text} is too large"),
        false => format!("{text:?} is not a whole number"),
    })
}

/// Parses an IP address with a port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not ADDRESS:PORT, for example 127.0.0.1:7443"))
}

/// Parses an absolute path: the commands of one control plane may run in different directories.
pub(crate) fn absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("{text:?} is not an absolute path")) }
}
