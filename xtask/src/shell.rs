//! Runs other programs, prints what runs, and reports failures with the command.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, bail};

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

/// Path of the running program: cargo may have replaced the file that it was started from.
pub(crate) fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Runs `command` with inherited output under the heading `what`; prints its duration in seconds.
pub(crate) fn run(what: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("==> {what}");
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{what}: {command:?} could not be started"))?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    eprintln!("    {what}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs `command` and returns its stdout.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?} could not be started"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
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
