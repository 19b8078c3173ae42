//! Checks packages and units with Debian's lintian and systemd's analyzer.

use std::process::Command;

use anyhow::{Context, bail};
use camino::Utf8Path;
use gpuaas_lab::EXPOSURE_TENTHS_MAX;

use crate::shell;

/// Runs lintian over the packages and `systemd-analyze security` over the units; prints a note for a tool that is not installed.
pub(super) fn run(folder: &Utf8Path) -> anyhow::Result<()> {
    if is_installed("lintian") {
        let mut lintian = Command::new("lintian");
        lintian.args(["--fail-on", "error", "--suppress-tags", "bad-distribution-in-changes-file"]);
        // Avoids a warning about running as root.
        lintian.arg("--allow-root");
        // Standard output is reserved for the folder's path.
        lintian.stdout(std::io::stderr());
        for entry in folder.read_dir_utf8()? {
            let path = entry?.into_path();
            if path.extension() == Some("deb") {
                lintian.arg(path);
            }
        }
        shell::run("lintian", &mut lintian)?;
    } else {
        eprintln!("    lintian: NOT RUN: it is not installed (apt install lintian)");
    }
    if !is_installed("systemd-analyze") {
        eprintln!("    systemd-analyze: NOT RUN: it is not installed");
        return Ok(());
    }
    let unit = |name: &str| shell::root().join("packaging").join(name);
    let server = analyzed()
        .arg("--threshold")
        .arg(EXPOSURE_TENTHS_MAX.to_string())
        .arg(unit("server/gpuaas-server.service"))
        .output();
    let server = server.context("running systemd-analyze")?;
    if !server.status.success() {
        bail!("the exposure of gpuaas-server.service is above 3.0:\n{}", String::from_utf8_lossy(&server.stdout));
    }
    let agent = shell::capture(analyzed().arg(unit("agent/gpuaas-agent.service")))?;
    let text = std::fs::read_to_string(unit("agent/gpuaas-agent.service"))?;
    let unexplained = unexplained(&agent, &text);
    if !unexplained.is_empty() {
        bail!("gpuaas-agent.service does not explain the exposed settings {}", unexplained.join(", "));
    }
    for (unit, report) in
        [("gpuaas-server", String::from_utf8_lossy(&server.stdout).into_owned()), ("gpuaas-agent", agent)]
    {
        let overall = report.lines().find_map(|line| line.split_once("exposure level for ")).map(|(_, of)| of.trim());
        eprintln!("    systemd-analyze security {}", overall.unwrap_or(unit));
    }
    Ok(())
}

fn analyzed() -> Command {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager"]).env("LC_ALL", "C.UTF-8");
    command
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Lists settings that systemd reports as exposed and that the unit does not mention.
fn unexplained(analyzed: &str, unit: &str) -> Vec<String> {
    let open = analyzed.lines().filter_map(|line| line.strip_prefix("✗ ")?.split_whitespace().next());
    let settings = open.flat_map(|names| {
        // `User=/DynamicUser=` and `SystemCallFilter=~@swap` both name settings.
        names.split('/').filter_map(|part| part.split_once('=')).map(|(name, _)| format!("{name}=")).collect::<Vec<_>>()
    });
    let mut missing: Vec<String> = settings.filter(|name| !unit.contains(name.as_str())).collect();
    missing.sort();
    missing.dedup();
    missing
}

#[cfg(test)]
mod tests {
    use super::unexplained;

    #[test]
    fn unexplained_exposure_is_found() {
        let analyzed = "✓ NoNewPrivileges= fine\n✗ User=/DynamicUser= root 0.4\n✗ SystemCallFilter=~@swap open 0.2\n✗ PrivateTmp= open 0.2\n";
        assert_eq!(unexplained(analyzed, "# User=, DynamicUser= why\nSystemCallFilter=~@clock\n"), ["PrivateTmp="]);
        assert!(unexplained(analyzed, "User= DynamicUser= SystemCallFilter= # PrivateTmp=").is_empty());
    }
}
