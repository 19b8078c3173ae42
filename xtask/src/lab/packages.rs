//! The Debian packages that the lab needs on this machine: installed as root, named otherwise.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use camino::Utf8PathBuf;

use super::refusal::Refusal;
use crate::shell;

/// A file that must be there (a program, or the whole path of something else), and the package that brings it.
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
/// Where programs are that an ordinary user's path may leave out.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Makes sure that all of them are there; the caller is root.
pub(super) fn ensure() -> anyhow::Result<()> {
    installed(&NEEDED)
}

/// Makes sure that the library is there by which programs see another time, and says where.
pub(super) fn faketime() -> anyhow::Result<Utf8PathBuf> {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
    installed(&[(library.as_str(), "libfaketime")])?;
    Ok(library.into())
}

fn installed(needed: &[(&str, &'static str)]) -> anyhow::Result<()> {
    let lacking = missing(needed);
    if lacking.is_empty() {
        return Ok(());
    }
    let packages = packages_of(&lacking);
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        // At this run level Debian starts nothing of what it installs. What it says goes where words go that are no data.
        apt.args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .stdout(Stdio::from(std::io::stderr()));
        apt
    };
    let install = [&["-qq", "install", "--yes", "--no-install-recommends"][..], &packages].concat();
    let ran = shell::run("apt-get update", &mut apt(&["-qq", "update"]))
        .and_then(|()| shell::run(&format!("installing {}", packages.join(", ")), &mut apt(&install)));
    match missing(needed) {
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

/// For a sentence: which packages root would install, if any.
pub(super) fn advice() -> String {
    match missing(&NEEDED) {
        lacking if lacking.is_empty() => String::new(),
        lacking => format!(". It would install {}", packages_of(&lacking).join(" ")),
    }
}

/// Names what is missing, and installs nothing.
pub(super) fn named() -> Result<(), Refusal> {
    let lacking = missing(&NEEDED);
    if lacking.is_empty() { Ok(()) } else { Err(refusal(&lacking)) }
}

/// Whether a program can be run.
pub(super) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(Into::into));
    // A whole path stays what it is, and need be no program.
    let is_it = |file: &Path| if program.starts_with('/') { file.is_file() } else { is_program(file) };
    folders.map(|folder| folder.join(program)).any(|file| is_it(&file))
}

/// A command of a program that only root may have on its path.
pub(super) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path());
    command
}

/// The path with those folders in it that hold what only root uses.
pub(super) fn path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    std::iter::once(own.as_str()).chain(SYSTEM_FOLDERS).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn missing<'n>(needed: &[(&'n str, &'static str)]) -> Vec<(&'n str, &'static str)> {
    needed.iter().copied().filter(|(file, _)| !is_there(file)).collect()
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
    fn a_package_is_named_once_for_all_that_it_brings() {
        let Refusal::Packages { programs, packages } = refusal(&[NEEDED[7], NEEDED[8], NEEDED[0]]) else {
            panic!("another refusal");
        };
        assert_eq!(
            (programs.as_str(), packages.as_str()),
            ("nsenter, unshare, systemd-nspawn", "systemd-container util-linux")
        );
    }

    #[test]
    fn programs_are_found_where_they_are_and_others_are_not() {
        assert!(is_there("sh") && is_there("/bin/sh"));
        assert!(is_there("/etc/hosts") && !is_there("gpuaas-never") && !is_there("/etc/gpuaas-never"));
    }
}
