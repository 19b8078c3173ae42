//! Runs shellcheck over scripts that run as root on users' machines.

use std::{fs, process::Command};

use crate::shell;

/// Checks every `sh` script; prints a note if shellcheck is not installed.
pub(super) fn check() -> anyhow::Result<()> {
    let scripts = scripts()?;
    if !Command::new("shellcheck").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!(
            "    shellcheck: NOT RUN over {} scripts: it is not installed (apt install shellcheck)",
            scripts.len()
        );
        return Ok(());
    }
    let mut command = Command::new("shellcheck");
    command.current_dir(shell::root()).args(["--shell", "sh", "--severity", "style"]).args(&scripts);
    shell::run(&format!("shellcheck over {} scripts", scripts.len()), &mut command)
}

/// Lists tracked `sh` scripts, except the stand-in's, which are largely the distribution's.
fn scripts() -> anyhow::Result<Vec<String>> {
    let is_script = |file: &String| {
        let path = shell::root().join(file);
        !file.starts_with("crates/standin/") && fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!/bin/sh\n"))
    };
    Ok(shell::files()?.into_iter().filter(is_script).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_installation_and_packages_are_checked() {
        let found = scripts().unwrap();
        for script in
            ["crates/api/src/routes/install/install.sh", "packaging/agent/postrm", "packaging/server/postinst"]
        {
            assert!(found.iter().any(|found| found == script), "{script} is not among {found:?}");
        }
    }
}
