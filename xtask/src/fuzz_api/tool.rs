//! The fuzzer, installed once per version into the user's cache.

use camino::Utf8PathBuf;

use crate::tools;

/// Everything that is installed, each at one version.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// The program.
pub(super) fn schemathesis() -> anyhow::Result<Utf8PathBuf> {
    Ok(tools::python_environment("schemathesis", REQUIREMENTS)?.join("bin/schemathesis"))
}
