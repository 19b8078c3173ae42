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

use crate::shell;

/// Compresses every file of a folder in both codings that browsers accept. Node.js contains the compressors, so nothing else is needed.
const COMPRESS: &str = include_str!("ui/compress.mjs");

/// Runs `cargo xtask ui`: builds the shell, and fails without Node.js.
pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(folder().join("package.json").is_file(), "this checkout has no workload shell: ui/package.json is missing");
    ensure!(
        has_node(),
        "the workload shell is built with Node.js 20 and npm, and `node --version` or `npm --version` fails: install them \
         (https://nodejs.org), or build without the shell: cargo build --workspace --bins"
    );
    build()?;
    println!("{}", folder().join("dist").display());
    Ok(())
}

/// Builds the shell if that is possible here; otherwise prints what the programs will lack.
pub(crate) fn build_if_possible() -> anyhow::Result<()> {
    if !folder().join("package.json").is_file() {
        return Ok(());
    }
    if !has_node() {
        eprintln!("    NOTE: built without the workload shell: Node.js 20 with npm was not found");
        return Ok(());
    }
    build()
}

/// Folder of the shell.
pub(crate) fn folder() -> PathBuf {
    shell::root().join("ui")
}

/// Reports whether Node.js and npm run here.
pub(crate) fn has_node() -> bool {
    let runs =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    runs("node") && runs("npm")
}

/// Builds the shell, unless its sources are those of the last build: other files would have the programs built again.
fn build() -> anyhow::Result<()> {
    let (dist, built) = (folder().join("dist"), shell::target().join("ui-built"));
    let sources = sources()?;
    if dist.join("index.html").is_file() && fs::read_to_string(&built).is_ok_and(|known| known == sources) {
        return Ok(());
    }
    install(&folder())?;
    let mut vite = Command::new(folder().join("node_modules/.bin/vite"));
    shell::run("building the workload shell", vite.arg("build").current_dir(folder()))?;
    let mut compress = Command::new("node");
    compress.args(["--input-type=module", "--eval", COMPRESS, "--"]).arg(&dist);
    shell::run("compressing the workload shell", &mut compress)?;
    fs::create_dir_all(shell::target())?;
    fs::write(&built, sources).with_context(|| built.display().to_string())
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
