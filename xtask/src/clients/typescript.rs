//! The client in TypeScript.

use std::{fs, process::Command};

use camino::{Utf8Path, Utf8PathBuf};

use crate::{shell, tools};

const PACKAGE: &str = include_str!("typescript/package.json");
const LOCK: &str = include_str!("typescript/package-lock.json");
const CONFIG: &str = include_str!("typescript/tsconfig.json");
const DEPLOY: &str = include_str!("typescript/deploy.ts");

fn environment() -> anyhow::Result<Utf8PathBuf> {
    tools::node_environment("openapi-typescript", PACKAGE, LOCK)
}

pub(super) fn install() -> anyhow::Result<()> {
    environment().map(drop)
}

pub(super) fn generate(folder: &Utf8Path) -> anyhow::Result<Command> {
    let modules = environment()?.join("node_modules");
    for (file, text) in [("package.json", PACKAGE), ("tsconfig.json", CONFIG), ("deploy.ts", DEPLOY)] {
        fs::write(folder.join(file), text)?;
    }
    std::os::unix::fs::symlink(&modules, folder.join("node_modules"))?;
    let tool = |name: &str| {
        let mut command = Command::new(modules.join(".bin").join(name));
        command.current_dir(folder);
        command
    };
    shell::run(
        "generating the client in TypeScript",
        tool("openapi-typescript").args(["openapi.json", "--output", "schema.d.ts"]),
    )?;
    shell::run("tsc --strict", tool("tsc").args(["--strict", "--project", "tsconfig.json"]))?;
    let mut deploy = Command::new("node");
    deploy.arg("built/deploy.js");
    Ok(deploy)
}
