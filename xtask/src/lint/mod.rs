//! Checks of form: rustfmt, clippy, and project rules that they cannot express.

mod bugs;
mod circles;
mod layers;
mod merges;
mod paths;
mod purity;
mod scripts;
mod security;
mod size;
mod words;

use anyhow::bail;

use crate::{shell, tools};

/// Runs every check.
pub(crate) fn run() -> anyhow::Result<()> {
    form()?;
    tools::deny()
}

/// Runs the checks of our own code. The project rules report all of their findings before the run fails.
pub(crate) fn form() -> anyhow::Result<()> {
    shell::run("rustfmt", &mut shell::cargo(&["fmt", "--all", "--check"]))?;
    let findings: Vec<String> = [
        layers::check()?,
        bugs::check()?,
        circles::check()?,
        size::check()?,
        purity::check()?,
        merges::check()?,
        security::check()?,
        words::check()?,
        paths::check()?,
    ]
    .concat();
    for finding in &findings {
        eprintln!("error: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} violations of the project rules", findings.len());
    }
    scripts::check()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    shell::run("clippy", &mut shell::cargo(&clippy))?;
    let links =
        ["doc", "--workspace", "--all-features", "--no-deps", "--document-private-items", "--locked", "--quiet"];
    shell::run("links in doc comments", &mut shell::cargo(&links))?;
    // Missing operations are detected by a test that combines API, command line and client.
    let coverage = [
        "test",
        "--quiet",
        "--workspace",
        "--all-features",
        "--locked",
        "--bin",
        "gpuaas",
        "documented::",
        "--",
        "--nocapture",
    ];
    shell::run(
        "operations without command, client method, audit, event, error page or test",
        &mut shell::cargo(&coverage),
    )
}
