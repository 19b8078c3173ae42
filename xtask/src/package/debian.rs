//! Debian packages, built with cargo-deb. The content of each is defined in its crate's `Cargo.toml`; maintainer scripts and units are in
//! `packaging`.

use std::{path::PathBuf, process::Command};

use camino::Utf8Path;

use super::{Version, commit_time, stage, stage::Stage};
use crate::{shell, tools};

/// Builds the package of a crate from the staged files.
pub(crate) fn build(stage: &Stage, of: &str, version: &Version, is_quick: bool, into: &Utf8Path) -> anyhow::Result<()> {
    let deb: PathBuf = tools::cargo_deb()?;
    let mut command = Command::new(deb);
    command.current_dir(shell::root()).args(["--package", of, "--no-build", "--no-strip", "--quiet", "--offline"]);
    // The stage takes the place of a profile's folder in cargo's target folder.
    command.args(["--profile", stage::FOLDER, "--deb-version", &version.debian(), "--output", into.as_str()]);
    command.args(["--compress-system", "--compress-type", if is_quick { "gz" } else { "xz" }]);
    command.args(is_quick.then_some("--fast"));
    command.env("SOURCE_DATE_EPOCH", commit_time().to_string());
    let target = stage.folder.parent().unwrap_or(&stage.folder);
    command.env("CARGO_TARGET_DIR", target);
    // cargo-deb prints the package's path, but standard output is reserved for the folder's path.
    command.stdout(std::io::stderr());
    shell::run(&format!("the Debian package of {of}"), &mut command)
}

/// Debian's name of this machine's architecture.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
