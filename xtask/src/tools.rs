//! Tools that the checks need and that no toolchain brings, built once into the user's cache.

use std::path::PathBuf;

use anyhow::Context;

use crate::shell;

const DENY_VERSION: &str = "0.20.2";

/// Checks bans, licences and sources of every dependency; advisories too where their database can be reached, else says so.
pub(crate) fn deny() -> anyhow::Result<()> {
    let deny = cargo_deny()?;
    let run = |checks: &[&str]| {
        let mut command = std::process::Command::new(&deny);
        command.current_dir(shell::root()).args(["--all-features", "--log-level", "error", "check"]).args(checks);
        command
    };
    shell::run(
        "cargo deny: bans, licences, sources",
        &mut run(&["--hide-inclusion-graph", "bans", "licenses", "sources"]),
    )?;
    let advisories = run(&["advisories"]).output().context("cargo deny check advisories")?;
    let said = String::from_utf8_lossy(&advisories.stderr);
    if advisories.status.success() {
        eprintln!("    advisories: none that matters");
    } else if said.contains("fetch") || said.contains("advisory database") {
        eprintln!("    advisories: NOT CHECKED, their database cannot be reached from here");
    } else {
        anyhow::bail!("advisories: {}", said.trim());
    }
    Ok(())
}

fn cargo_deny() -> anyhow::Result<PathBuf> {
    let home = cache()?.join(format!("tools/cargo-deny-{DENY_VERSION}"));
    let binary = home.join("bin/cargo-deny");
    if !binary.is_file() {
        let root = home.to_str().context("the cache folder's path is no text")?;
        // Unoptimised: it runs for a second, and optimising it takes minutes.
        let install =
            ["install", "--locked", "--quiet", "--debug", "--root", root, "--version", DENY_VERSION, "cargo-deny"];
        shell::run("building cargo-deny (first time only)", &mut shell::cargo(&install))?;
    }
    Ok(binary)
}

/// This project's folder in the user's cache.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(base.join("gpuaas"))
}
