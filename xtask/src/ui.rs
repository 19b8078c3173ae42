//! Builds the workload shell with Node.js into the folder `dist` of `ui`, from where the next build of the control plane embeds it.
//!
//! Deliberately absent: the shell itself (`ui`), and the embedding (`crates/api/build.rs`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use aws_lc_rs::digest::{SHA256, digest};

use crate::{shell, tools};

/// Compresses every file of a folder in both codings that browsers accept. Node.js contains the compressors, so nothing else is needed.
const COMPRESS: &str = include_str!("ui/compress.mjs");

/// Earliest major version of Node.js that builds the shell.
const NODE_MAJOR: u32 = 20;

/// Runs `cargo xtask ui`: builds the shell, and fails without Node.js.
pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(folder().join("package.json").is_file(), "this checkout has no workload shell: ui/package.json is missing");
    ensure!(
        has_node(),
        "the workload shell is built with Node.js 20 and npm, and `node --version` or `npm --version` fails or names an \
         earlier one: install them (https://nodejs.org), or build without the shell: cargo build --workspace --bins"
    );
    if let Some(sources) = changed_sources()? {
        install(&folder())?;
        build(&sources)?;
    }
    println!("{}", folder().join("dist").display());
    Ok(())
}

/// Builds the shell if that is possible here; otherwise prints what the programs will lack. A shell that does not compile is an error.
pub(crate) fn build_if_possible() -> anyhow::Result<()> {
    if !folder().join("package.json").is_file() {
        return Ok(());
    }
    if !has_node() {
        note("Node.js 20 with npm was not found");
        return Ok(());
    }
    let Some(sources) = changed_sources()? else { return Ok(()) };
    match install(&folder()) {
        Ok(()) => build(&sources),
        Err(failed) if tools::can_reach(&tools::NPM) => Err(failed),
        Err(failed) => {
            note(&format!("its packages cannot be downloaded: {failed:#}"));
            Ok(())
        }
    }
}

/// Prints which shell the programs get instead of the present one.
fn note(why: &str) {
    let is_built = folder().join("dist/index.html").is_file();
    let instead = if is_built { "with the workload shell of an earlier build" } else { "without the workload shell" };
    eprintln!("    NOTE: built {instead}: {why}");
}

/// Folder of the shell.
pub(crate) fn folder() -> PathBuf {
    shell::root().join("ui")
}

/// Reports whether npm and a Node.js that can build the shell run here.
pub(crate) fn has_node() -> bool {
    let version = |program: &str| shell::capture(Command::new(program).arg("--version")).ok();
    version("node").is_some_and(|version| is_new_enough(&version)) && version("npm").is_some()
}

/// Returns whether this output of `node --version` names at least [`NODE_MAJOR`].
fn is_new_enough(version: &str) -> bool {
    let major = version.trim().strip_prefix('v').and_then(|version| version.split('.').next());
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= NODE_MAJOR)
}

/// File with the digest of the sources of the last build.
fn marker() -> PathBuf {
    shell::target().join("ui-built")
}

/// Returns the digest of the shell's sources, or `None` if the last build was of the same: other files would have the programs built again.
fn changed_sources() -> anyhow::Result<Option<String>> {
    let sources = sources()?;
    let is_built =
        folder().join("dist/index.html").is_file() && fs::read_to_string(marker()).is_ok_and(|known| known == sources);
    Ok((!is_built).then_some(sources))
}

/// Builds the shell with the installed packages. The marker is absent meanwhile: a build that was interrupted is repeated.
fn build(sources: &str) -> anyhow::Result<()> {
    let (dist, marker) = (folder().join("dist"), marker());
    if marker.exists() {
        fs::remove_file(&marker).with_context(|| marker.display().to_string())?;
    }
    let mut vite = Command::new(folder().join("node_modules/.bin/vite"));
    shell::run("building the workload shell", vite.arg("build").current_dir(folder()))?;
    let mut compress = Command::new("node");
    compress.args(["--input-type=module", "--eval", COMPRESS, "--"]).arg(&dist);
    shell::run("compressing the workload shell", &mut compress)?;
    fs::create_dir_all(shell::target())?;
    fs::write(&marker, sources).with_context(|| marker.display().to_string())
}

/// Installs the packages that the lock file in this folder pins, unless they are installed.
pub(crate) fn install(folder: &Path) -> anyhow::Result<()> {
    let changed = |path: &Path| fs::metadata(path).and_then(|of| of.modified()).ok();
    let (lock, installed) = (folder.join("package-lock.json"), folder.join("node_modules/.package-lock.json"));
    if changed(&installed) >= changed(&lock) {
        return Ok(());
    }
    // Scripts of packages do not run.
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).current_dir(folder);
    shell::run(&format!("installing the packages of {}", folder.display()), &mut npm)
}

/// Digest of the files from which the shell is built, and of their names. Its tests are not part of it.
fn sources() -> anyhow::Result<String> {
    let mut content = Vec::new();
    let is_source = |file: &String| file.starts_with("ui/") && !file.starts_with("ui/tests/");
    for file in shell::files()?.into_iter().filter(is_source) {
        let bytes = fs::read(shell::root().join(&file)).with_context(|| file.clone())?;
        content.extend(format!("{file} {}\n", hex::encode(digest(&SHA256, &bytes))).into_bytes());
    }
    Ok(hex::encode(digest(&SHA256, &content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_new_enough_from_major_version_20() {
        for (version, expected) in [
            ("v20.20.2\n", true),
            ("v24.0.0", true),
            ("v100.1.0", true),
            ("v18.20.4\n", false),
            ("20.1.0", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), expected, "{version:?}");
        }
    }
}
