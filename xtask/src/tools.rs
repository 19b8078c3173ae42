//! Tools that checks need and that toolchains lack, built once into the user's cache.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
pub(crate) use gpuaas_lab::cache::folder as cache;

use crate::shell;

const DEB_VERSION: &str = "3.8.0";
const DENY_VERSION: &str = "0.20.2";
const MUTANTS_VERSION: &str = "27.1.0";

/// Command that succeeds if npm's registry can be reached.
pub(crate) const NPM: [&str; 4] = ["npm", "ping", "--loglevel", "silent"];

/// Reports whether a command that asks a package registry succeeds.
pub(crate) fn can_reach(registry: &[&str]) -> bool {
    let mut command = Command::new(registry[0]);
    command.args(&registry[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Checks bans, licences and sources of every dependency, and advisories if their database is reachable; prints a note otherwise.
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
    let stderr = String::from_utf8_lossy(&advisories.stderr);
    if advisories.status.success() {
        eprintln!("    advisories: none that applies");
    } else if stderr.contains("fetch") || stderr.contains("advisory database") {
        eprintln!(
            "    advisories: NOT CHECKED: the advisory database cannot be fetched; run `cargo deny check advisories` where github.com is reachable"
        );
    } else {
        anyhow::bail!("advisories: {}", stderr.trim());
    }
    Ok(())
}

fn cargo_deny() -> anyhow::Result<PathBuf> {
    install("cargo-deny", DENY_VERSION, &[])
}

/// Tool that mutates code and lists the changes that no test notices.
pub(crate) fn cargo_mutants() -> anyhow::Result<PathBuf> {
    install("cargo-mutants", MUTANTS_VERSION, &[])
}

/// Tool that builds Debian packages. Without its own compression: the system's is equivalent and needs no C code compiled.
pub(crate) fn cargo_deb() -> anyhow::Result<PathBuf> {
    install("cargo-deb", DEB_VERSION, &["--no-default-features"])
}

/// Creates a private Python environment of pinned packages in the cache. Needs `python3` with its venv module, and PyPI the first time.
pub(crate) fn python_environment(name: &str, requirements: &str) -> anyhow::Result<Utf8PathBuf> {
    environment(name, requirements, |home| {
        let venv = ["-m", "venv", "--clear", home.as_str()];
        let mut python = Command::new("python3");
        shell::run(&format!("creating an environment for {name} (first time only)"), python.args(venv))?;
        let file = home.join("requirements.txt");
        fs::write(&file, requirements)?;
        let install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", file.as_str()];
        let mut pip = Command::new(home.join("bin/pip"));
        shell::run(&format!("installing {name} (first time only)"), pip.args(install))
    })
}

/// Creates a folder of pinned npm packages in the cache. Needs `npm`, and its registry the first time.
pub(crate) fn node_environment(name: &str, package: &str, lock: &str) -> anyhow::Result<Utf8PathBuf> {
    environment(name, lock, |home| {
        fs::write(home.join("package.json"), package)?;
        fs::write(home.join("package-lock.json"), lock)?;
        // Scripts of packages do not run.
        let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"];
        let mut npm = Command::new("npm");
        shell::run(&format!("installing {name} (first time only)"), npm.args(install).current_dir(home))
    })
}

/// Returns a folder of the cache that `install` has filled once for this recipe.
fn environment(
    name: &str,
    recipe: &str,
    install: impl FnOnce(&Utf8Path) -> anyhow::Result<()>,
) -> anyhow::Result<Utf8PathBuf> {
    let recipe = hex::encode(digest(&SHA256, recipe.as_bytes()));
    let home = cache()?.join(format!("tools/{name}-{}", &recipe[..16]));
    let home = Utf8PathBuf::from_path_buf(home).ok().context("the cache folder's path is not UTF-8")?;
    let complete = home.join("whole");
    // An environment cannot be moved, so a marker file shows that it is complete.
    if complete.is_file() {
        return Ok(home);
    }
    fs::create_dir_all(&home).with_context(|| home.to_string())?;
    let lock = fs::File::create(home.with_extension("lock"))?;
    lock.lock()?;
    if !complete.is_file() {
        install(&home)?;
        fs::write(&complete, "")?;
    }
    Ok(home)
}

/// Builds a program from the package registry into the cache, unless it is there.
fn install(program: &str, version: &str, features: &[&str]) -> anyhow::Result<PathBuf> {
    let home = cache()?.join(format!("tools/{program}-{version}"));
    let binary = home.join("bin").join(program);
    if !binary.is_file() {
        let root = home.to_str().context("the cache folder's path is not UTF-8")?;
        // Unoptimised: the programs that it runs take most of the time, and optimising would take minutes.
        let install = ["install", "--locked", "--quiet", "--debug", "--root", root, "--version", version, program];
        shell::run(&format!("building {program} (first time only)"), shell::cargo(&install).args(features))?;
    }
    Ok(binary)
}
