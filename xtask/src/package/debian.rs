//! Debian packages, by cargo-deb. What goes into each is said in the crates' own `Cargo.toml`; maintainer scripts and units lie in `packaging`.

use std::{path::PathBuf, process::Command};

use camino::Utf8Path;

use super::{Version, commit_time, stage, stage::Stage};
use crate::{shell, tools};

/// Where the script lies that brings machines in; packages have it too, so that it is there when it is to remove them.
pub(crate) const SCRIPT: &str = "crates/api/src/routes/install/install.sh";
/// As `Cargo.toml` has it.
pub(crate) const MAINTAINER: &str = "GPUaaS maintainers <maintainers@gpuaas.dev>";

/// Packages what the stage holds of a crate.
pub(crate) fn build(stage: &Stage, of: &str, version: &Version, is_quick: bool, into: &Utf8Path) -> anyhow::Result<()> {
    let deb: PathBuf = tools::cargo_deb()?;
    let mut command = Command::new(deb);
    command.current_dir(shell::root()).args(["--package", of, "--no-build", "--no-strip", "--quiet", "--offline"]);
    // The stage stands for cargo's own folder: it is told as a profile's.
    command.args(["--profile", stage::FOLDER, "--deb-version", &version.debian(), "--output", into.as_str()]);
    command.args(["--compress-system", "--compress-type", if is_quick { "gz" } else { "xz" }]);
    command.args(is_quick.then_some("--fast"));
    command.env("SOURCE_DATE_EPOCH", commit_time().to_string());
    let target = stage.folder.parent().unwrap_or(&stage.folder);
    command.env("CARGO_TARGET_DIR", target);
    // It prints where the package is; the one line on standard output is the folder's path.
    command.stdout(std::io::stderr());
    shell::run(&format!("the Debian package of {of}"), &mut command)
}

/// This machine's architecture, as Debian calls it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
