//! Tools that the checks need and that no toolchain brings, built once into the user's cache.

use std::path::PathBuf;

use anyhow::Context;

use crate::shell;

const DENY_VERSION: &str = "0.20.2";
const MUTANTS_VERSION: &str = "27.1.0";

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
    installed("cargo-deny", DENY_VERSION)
}

/// Changes code in small ways and says which changes no test notices.
pub(crate) fn cargo_mutants() -> anyhow::Result<PathBuf> {
    installed("cargo-mutants", MUTANTS_VERSION)
}

/// A program of the package registry, built into the cache unless it is there.
fn installed(program: &str, version: &str) -> anyhow::Result<PathBuf> {
    let home = cache()?.join(format!("tools/{program}-{version}"));
    let binary = home.join("bin").join(program);
    if !binary.is_file() {
        let root = home.to_str().context("the cache folder's path is no text")?;
        // Unoptimised: what takes time is what it runs, and optimising it takes minutes.
        let install = ["install", "--locked", "--quiet", "--debug", "--root", root, "--version", version, program];
        shell::run(&format!("building {program} (first time only)"), &mut shell::cargo(&install))?;
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
