//! The fuzzer, installed once per version into the user's cache.

use camino::Utf8PathBuf;

use crate::tools;

/// Pinned versions of everything that is installed.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Path of the fuzzer.
pub(super) fn schemathesis() -> anyhow::Result<Utf8PathBuf> {
    Ok(tools::python_environment("schemathesis", REQUIREMENTS)?.join("bin/schemathesis"))
}
