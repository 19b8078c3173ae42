//! The fuzzer, installed once per version into the user's cache.

use std::{fs, process::Command};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest};
use camino::Utf8PathBuf;

use crate::{shell, tools};

/// Everything that is installed, each at one version.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// The program. Needs `python3` with its venv module, and PyPI the first time.
pub(super) fn schemathesis() -> anyhow::Result<Utf8PathBuf> {
    let recipe = hex::encode(digest(&SHA256, REQUIREMENTS.as_bytes()));
    let home = tools::cache()?.join(format!("tools/schemathesis-{}", &recipe[..16]));
    let home = Utf8PathBuf::from_path_buf(home).ok().context("the cache folder's path is no text")?;
    let (program, whole) = (home.join("bin/schemathesis"), home.join("whole"));
    // An environment cannot be moved; the mark says that it was finished.
    if whole.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&home).with_context(|| home.to_string())?;
    let lock = fs::File::create(home.with_extension("lock"))?;
    lock.lock()?;
    if whole.is_file() {
        return Ok(program);
    }
    let venv = ["-m", "venv", "--clear", home.as_str()];
    shell::run("an environment for schemathesis (first time only)", Command::new("python3").args(venv))?;
    let requirements = home.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", requirements.as_str()];
    shell::run("installing schemathesis (first time only)", Command::new(home.join("bin/pip")).args(install))?;
    fs::write(&whole, "")?;
    Ok(program)
}
