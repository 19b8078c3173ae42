//! Runs cargo and other programs in this checkout.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) use gpuaas_lab::shell::{capture, own_program, run};

/// Root of this checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one folder below the workspace root")
}

/// Command for the cargo that runs this xtask.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Builds every program of the workspace with the features that the tests use, so that nothing is compiled twice. Returns their folder.
pub(crate) fn build_programs() -> anyhow::Result<PathBuf> {
    let arguments = ["build", "--quiet", "--workspace", "--bins", "--all-features", "--locked"];
    run("building gpuaas, gpuaas-agent and the stand-in", &mut cargo(&arguments))?;
    Ok(target().join("debug"))
}

/// Builds the stand-in and returns its program.
pub(crate) fn build_stand_in(profile: &str) -> anyhow::Result<PathBuf> {
    if profile == "dev" {
        return Ok(build_programs()?.join("rke2"));
    }
    let arguments =
        ["build", "--quiet", "--package", "gpuaas-standin", "--bin", "rke2", "--locked", "--profile", profile];
    run(&format!("building the stand-in with profile {profile}"), &mut cargo(&arguments))?;
    Ok(target().join(profile).join("rke2"))
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Lists files that git tracks or would track, relative to the root.
pub(crate) fn files() -> anyhow::Result<Vec<String>> {
    let list = capture(Command::new("git").current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut files: Vec<String> = list.lines().filter(|file| root().join(file).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}
