//! The client in Python.

use std::{fs, process::Command};

use camino::{Utf8Path, Utf8PathBuf};

use crate::{shell, tools};

/// Pinned versions of everything that is installed, with their digests.
const REQUIREMENTS: &str = include_str!("python/requirements.txt");
const DEPLOY: &str = include_str!("python/deploy.py");
const CONFIG: &str = include_str!("python/config.yml");

fn environment() -> anyhow::Result<Utf8PathBuf> {
    tools::python_environment("openapi-python-client", REQUIREMENTS)
}

pub(super) fn install() -> anyhow::Result<()> {
    environment().map(drop)
}

pub(super) fn generate(folder: &Utf8Path) -> anyhow::Result<Command> {
    let programs = environment()?.join("bin");
    fs::write(folder.join("deploy.py"), DEPLOY)?;
    fs::write(folder.join("config.yml"), CONFIG)?;
    // A part that cannot be generated is an error, not a warning.
    let mut generator = Command::new(programs.join("openapi-python-client"));
    generator.current_dir(folder).args(["generate", "--path", "openapi.json", "--meta", "none", "--fail-on-warning"]);
    generator.args(["--config", "config.yml", "--output-path", "gpuaas_client"]);
    shell::run("generating the client in Python", &mut generator)?;
    let mut deploy = Command::new(programs.join("python"));
    deploy.arg("deploy.py");
    Ok(deploy)
}
