//! This project's folder in the user's cache.

use std::path::PathBuf;

use anyhow::Context;

/// Path of the folder, which may not exist yet.
pub fn folder() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(base.join("gpuaas"))
}
