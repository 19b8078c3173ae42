//! What the root file system is made of. Any change here makes another one.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest as digest_of};
use camino::{Utf8Path, Utf8PathBuf};

/// Debian's release.
pub(super) const SUITE: &str = "bookworm";
/// Where packages come from, unless [`MIRROR_VARIABLE`] names another place.
const MIRROR: &str = "http://deb.debian.org/debian";
const MIRROR_VARIABLE: &str = "GPUAAS_LAB_MIRROR";
/// Beside the essential packages.
const PACKAGES: &[&str] = &[
    // A machine that boots, with a message bus.
    "systemd",
    "systemd-sysv",
    "dbus",
    "kmod",
    "procps",
    // A machine in a network, as operators find it.
    "iproute2",
    "iputils-ping",
    "ca-certificates",
    "curl",
    "openssl",
    // What RKE2's scripts, kubelet and kube-proxy call.
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
/// What makes a booted container a machine that kubelets take; see its head.
const GROUND: &str = include_str!("ground.sh");
const GROUND_UNIT: &str = include_str!("ground.service");
/// Where both lie in the tree.
const GROUND_PATH: &str = "usr/lib/gpuaas-lab/ground";
const UNIT_PATH: &str = "usr/lib/systemd/system/gpuaas-lab-ground.service";
/// Containers are no units: what is left of them at a shutdown is waited for this long, and then killed. Debian waits a minute and a half.
const SHUTDOWN: &str = "[Manager]\nDefaultTimeoutStopSec=15s\n";
const SHUTDOWN_PATH: &str = "etc/systemd/system.conf.d/gpuaas-lab.conf";
/// Links of units, as `systemctl` would make them.
const UNITS: [(&str, &str); 2] = [
    ("usr/lib/systemd/system/sysinit.target.wants/gpuaas-lab-ground.service", "../gpuaas-lab-ground.service"),
    // Nobody logs in at the console.
    ("etc/systemd/system/console-getty.service", "/dev/null"),
];
/// What a node makes or is given for itself, and what only the making needed.
const EMPTIED: [&str; 4] = ["var/lib/apt/lists", "var/cache/apt", "var/log/apt", "var/cache/ldconfig"];

fn mirror() -> String {
    std::env::var(MIRROR_VARIABLE).ok().filter(|mirror| !mirror.is_empty()).unwrap_or_else(|| MIRROR.to_owned())
}

/// The words of debootstrap.
pub(super) fn debootstrap(tree: &Utf8Path) -> Vec<String> {
    let include = format!("--include={}", PACKAGES.join(","));
    ["debootstrap", "--variant=minbase", &include, SUITE, tree.as_str(), &mirror()].map(str::to_owned).to_vec()
}

/// In hex; another for another recipe.
pub(super) fn digest() -> String {
    let units = UNITS.map(|(link, target)| format!("{link} {target}"));
    let words = debootstrap(Utf8Path::new("tree"));
    let parts = [
        words.join(" "),
        GROUND.to_owned(),
        GROUND_UNIT.to_owned(),
        SHUTDOWN.to_owned(),
        units.join(" "),
        EMPTIED.join(" "),
    ];
    hex::encode(digest_of(&SHA256, parts.join("\0").as_bytes()))
}

/// Adds what is ours, and takes away what only the making needed.
pub(super) fn finish(tree: &Utf8Path) -> anyhow::Result<()> {
    write(tree.join(GROUND_PATH), GROUND, 0o755)?;
    write(tree.join(UNIT_PATH), GROUND_UNIT, 0o644)?;
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
    // A journal that outlives a boot, as Debian has it.
    fs::create_dir_all(tree.join("var/log/journal"))?;
    // Each node gets its own.
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
    fn what_is_added_lies_where_its_unit_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Utf8Path::from_path(folder.path()).expect("a text");
        finish(tree).expect("an empty tree will do");
        let unit = fs::read_to_string(tree.join(UNITS[0].0)).expect("the link leads to it");
        let program = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/")).expect("it runs something");
        let mode = fs::metadata(tree.join(program)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(digest(), digest());
    }
}
