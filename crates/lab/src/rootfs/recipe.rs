//! Content of the root file system. Any change here leads to a new build.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest as digest_of};
use camino::{Utf8Path, Utf8PathBuf};

/// Debian release.
pub(super) const SUITE: &str = "bookworm";
/// Package mirror, unless [`MIRROR_VARIABLE`] names another.
const MIRROR: &str = "http://deb.debian.org/debian";
const MIRROR_VARIABLE: &str = "GPUAAS_LAB_MIRROR";
/// Packages in addition to the essential ones.
const PACKAGES: &[&str] = &[
    // A machine that boots, with a message bus.
    "systemd",
    "systemd-sysv",
    "dbus",
    "kmod",
    "procps",
    // A networked machine with the tools that operators expect.
    "iproute2",
    "iputils-ping",
    "ca-certificates",
    "curl",
    "openssl",
    // Programs that RKE2's scripts, kubelet and kube-proxy call.
    "iptables",
    "nftables",
    "conntrack",
    "ethtool",
    "socat",
    "ipset",
    "lsof",
    "psmisc",
    "util-linux-extra",
];
/// Script that prepares a booted container for kubelets; its head explains the steps.
const BASELINE: &str = include_str!("baseline.sh");
const BASELINE_UNIT: &str = include_str!("baseline.service");
/// Paths of both files in the tree.
const BASELINE_PATH: &str = "usr/lib/gpuaas-lab/baseline";
const UNIT_PATH: &str = "usr/lib/systemd/system/gpuaas-lab-baseline.service";
/// At shutdown systemd waits this long for processes of containers, which are no units, then kills them. Debian's default is 90 s.
const SHUTDOWN: &str = "[Manager]\nDefaultTimeoutStopSec=15s\n";
const SHUTDOWN_PATH: &str = "etc/systemd/system.conf.d/gpuaas-lab.conf";
/// Links that enable or mask units, as `systemctl` would create them.
const UNITS: [(&str, &str); 2] = [
    ("usr/lib/systemd/system/sysinit.target.wants/gpuaas-lab-baseline.service", "../gpuaas-lab-baseline.service"),
    // No login on the console.
    ("etc/systemd/system/console-getty.service", "/dev/null"),
];
/// Folders emptied after the build: each node creates their content itself, or only the build needed it.
const EMPTIED: [&str; 4] = ["var/lib/apt/lists", "var/cache/apt", "var/log/apt", "var/cache/ldconfig"];

fn mirror() -> String {
    std::env::var(MIRROR_VARIABLE).ok().filter(|mirror| !mirror.is_empty()).unwrap_or_else(|| MIRROR.to_owned())
}

/// Returns the command line of debootstrap.
pub(super) fn debootstrap(tree: &Utf8Path) -> Vec<String> {
    let include = format!("--include={}", PACKAGES.join(","));
    ["debootstrap", "--variant=minbase", &include, SUITE, tree.as_str(), &mirror()].map(str::to_owned).to_vec()
}

/// Digest in hex of all that decides the content of the tree: if it differs, the tree is built again.
pub(super) fn digest() -> String {
    let units = UNITS.map(|(link, target)| format!("{link} {target}"));
    let command = debootstrap(Utf8Path::new("tree"));
    let parts = [
        command.join(" "),
        BASELINE.to_owned(),
        BASELINE_UNIT.to_owned(),
        SHUTDOWN.to_owned(),
        units.join(" "),
        EMPTIED.join(" "),
    ];
    hex::encode(digest_of(&SHA256, parts.join("\0").as_bytes()))
}

/// Adds the lab's files and removes what only the build needed.
pub(super) fn finish(tree: &Utf8Path) -> anyhow::Result<()> {
    write(tree.join(BASELINE_PATH), BASELINE, 0o755)?;
    write(tree.join(UNIT_PATH), BASELINE_UNIT, 0o644)?;
    write(tree.join(SHUTDOWN_PATH), SHUTDOWN, 0o644)?;
    for (link, target) in UNITS {
        let link = tree.join(link);
        fs::create_dir_all(link.parent().unwrap_or(tree)).with_context(|| link.to_string())?;
        std::os::unix::fs::symlink(target, &link).with_context(|| link.to_string())?;
    }
    for folder in EMPTIED {
        let folder = tree.join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder).and_then(|()| fs::create_dir(&folder)).with_context(|| folder.to_string())?;
        }
    }
    // A persistent journal, as on Debian.
    fs::create_dir_all(tree.join("var/log/journal"))?;
    // Each node gets its own machine ID.
    write(tree.join("etc/machine-id"), "", 0o444)
}

fn write(path: Utf8PathBuf, text: &str, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(&path)).with_context(|| path.to_string())?;
    fs::write(&path, text).with_context(|| path.to_string())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(|| path.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_script_is_installed_where_its_unit_starts_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tree = Utf8Path::from_path(folder.path()).expect("the path is UTF-8");
        finish(tree).expect("an empty tree is accepted");
        let unit = fs::read_to_string(tree.join(UNITS[0].0)).expect("the link points to the unit");
        let program =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=/")).expect("the unit starts a program");
        let mode = fs::metadata(tree.join(program)).expect("the program exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
}
