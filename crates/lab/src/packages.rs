//! Debian packages that the lab needs on this machine. They are installed if the user is root; other users get their names.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use super::refusal::Refusal;
use crate::shell;

/// A program, or the absolute path of another file, and the package that contains it.
const NEEDED: [(&str, &str); 13] = [
    ("systemd-nspawn", "systemd-container"),
    ("debootstrap", "debootstrap"),
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("dnsmasq", "dnsmasq-base"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("bash", "bash"),
    ("cp", "coreutils"),
    ("rm", "coreutils"),
];
/// Folders of programs that may be missing from an ordinary user's `PATH`.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Installs the packages that are missing; the caller is root.
pub(super) fn ensure() -> anyhow::Result<()> {
    let lacking = missing();
    if lacking.is_empty() {
        return Ok(());
    }
    let packages = packages_of(&lacking);
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        // With run level 1, Debian starts none of the services that it installs. The output of apt-get goes to stderr, because stdout is
        // for data.
        apt.args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .stdout(Stdio::from(std::io::stderr()));
        apt
    };
    let install = [&["-qq", "install", "--yes", "--no-install-recommends"][..], &packages].concat();
    let ran = shell::run("apt-get update", &mut apt(&["-qq", "update"]))
        .and_then(|()| shell::run(&format!("installing {}", packages.join(", ")), &mut apt(&install)));
    match missing() {
        lacking if lacking.is_empty() => Ok(()),
        lacking => {
            let refusal = refusal(&lacking);
            match ran {
                Err(error) => Err(error.context(refusal)),
                Ok(()) => Err(refusal.into()),
            }
        }
    }
}

/// Text for an error message: the packages that root would install, if any.
pub(super) fn advice() -> String {
    match missing() {
        lacking if lacking.is_empty() => String::new(),
        lacking => format!(". Root would install the missing packages {}", packages_of(&lacking).join(" ")),
    }
}

/// Fails with the names of missing packages; installs nothing.
pub(super) fn check_installed() -> Result<(), Refusal> {
    let lacking = missing();
    if lacking.is_empty() { Ok(()) } else { Err(refusal(&lacking)) }
}

/// Reports whether a program can be run.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(Into::into));
    // An absolute path is taken as it is, and need not be executable.
    let is_match = |file: &Path| if program.starts_with('/') { file.is_file() } else { is_program(file) };
    folders.map(|folder| folder.join(program)).any(|file| is_match(&file))
}

/// Returns a command for a program that may be only on root's `PATH`.
pub(super) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path());
    command
}

/// `PATH` with the system folders appended.
pub(super) fn path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    std::iter::once(own.as_str()).chain(SYSTEM_FOLDERS).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn missing() -> Vec<(&'static str, &'static str)> {
    NEEDED.into_iter().filter(|(file, _)| !is_installed(file)).collect()
}

fn packages_of(missing: &[(&str, &'static str)]) -> Vec<&'static str> {
    let mut packages: Vec<&'static str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn refusal(missing: &[(&str, &'static str)]) -> Refusal {
    let programs: Vec<&str> = missing.iter().map(|(file, _)| *file).collect();
    Refusal::Packages { programs: programs.join(", "), packages: packages_of(missing).join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_of_several_programs_is_named_once() {
        let Refusal::Packages { programs, packages } = refusal(&[NEEDED[7], NEEDED[8], NEEDED[0]]) else {
            panic!("expected the missing packages");
        };
        assert_eq!(
            (programs.as_str(), packages.as_str()),
            ("nsenter, unshare, systemd-nspawn", "systemd-container util-linux")
        );
    }

    #[test]
    fn programs_are_found_on_the_path_and_by_absolute_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(is_installed("/etc/hosts") && !is_installed("gpuaas-never") && !is_installed("/etc/gpuaas-never"));
    }
}
