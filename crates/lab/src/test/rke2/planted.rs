//! Planted residue: things of every kind that an uninstall does not remove.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, ensure};
use camino::Utf8PathBuf;
use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open};

use crate::{node::Node, test::command_output::capture_script};

/// A file that `rm` cannot remove: it is immutable.
const FILE: &str = "/var/lib/rancher/rke2/planted";
/// The topmost path that is left because of it.
const FOLDER: &str = "/var/lib/rancher/rke2";
/// A mount in a folder where an uninstall removes files but unmounts nothing.
const MOUNT: &str = "/var/lib/kubelet/planted";
const MOUNT_FOLDER: &str = "/var/lib/kubelet";
/// A unit with the name of RKE2's other one, in the folder of distribution units: the uninstall looks elsewhere.
const UNIT: &str = "rke2-server.service";
#[cfg(test)]
const UNIT_FOLDER: &str = "/usr/lib/systemd/system/";
/// A unit with RKE2's prefix among the administrator's units: the uninstall deletes it.
const REMOVED_UNIT: &str = "/etc/systemd/system/rke2-planted.service";
const LINK: &str = "cali0planted";
/// The supervisor's port, on which no agent listens.
const PORT: u16 = 9_345;
/// A chain whose name the removal of flannel's rules does not match.
const CHAIN: &str = "FLANNEL-PLANTED";

const PLANT: &str = r#"
set -e
mkdir -p /var/lib/kubelet/planted && mount -t tmpfs planted /var/lib/kubelet/planted
for unit in /usr/lib/systemd/system/rke2-server.service /etc/systemd/system/rke2-planted.service; do
    printf '[Unit]\nDescription=Planted\n[Service]\nExecStart=/bin/true\n' >"$unit"
done
ip link add cali0planted type bridge
setsid --fork sh -c 'echo $$ >/run/planted.pid; exec socat TCP-LISTEN:9345,fork,reuseaddr /dev/null' </dev/null >/dev/null 2>&1
iptables --new-chain FLANNEL-PLANTED && iptables --append INPUT --protocol udp --dport 9 --jump FLANNEL-PLANTED
"#;

const REMOVE: &str = r#"
set -e
umount /var/lib/kubelet/planted && rm -r /var/lib/kubelet
rm /usr/lib/systemd/system/rke2-server.service && systemctl daemon-reload
ip link delete cali0planted
kill "$(cat /run/planted.pid)" && rm /run/planted.pid
iptables --delete INPUT --protocol udp --dport 9 --jump FLANNEL-PLANTED && iptables --delete-chain FLANNEL-PLANTED
rm -r /var/lib/rancher
"#;

/// Planted things on a machine.
pub(super) struct Planted<'a> {
    node: &'a Node,
    file: Utf8PathBuf,
}

impl<'a> Planted<'a> {
    /// Plants everything on a machine that is an agent.
    pub(super) fn plant(node: &'a Node) -> anyhow::Result<Self> {
        capture_script(node, PLANT)?;
        let file = node.root().join(FILE.trim_start_matches('/'));
        fs::write(&file, "planted\n").with_context(|| file.to_string())?;
        let planted = Self { node, file };
        planted.set_immutable(true)?;
        Ok(planted)
    }

    /// The residue that the platform must report, as kind and prefix of the name.
    pub(super) fn expected() -> BTreeSet<(&'static str, String)> {
        let owned = |(kind, what): (&'static str, &str)| (kind, what.to_owned());
        let named = [("path", FOLDER), ("path", MOUNT_FOLDER), ("mount", MOUNT), ("unit", UNIT), ("link", LINK)];
        named.into_iter().map(owned).chain([("listener", format!("{PORT}/tcp at 0.0.0.0 "))]).collect()
    }

    /// Checks that the platform reports all planted things and nothing else.
    pub(super) fn check_reported(reported: &BTreeSet<(String, String)>) -> anyhow::Result<()> {
        let is = |(kind, what): &(String, String), (of, named): &(&str, String)| {
            kind == of && (what == named || kind == "listener" && what.starts_with(named.as_str()))
        };
        let expected = Self::expected();
        for item in &expected {
            ensure!(
                reported.iter().any(|one| is(one, item)),
                "{} {} was planted, but is not reported: {reported:?}",
                item.0,
                item.1
            );
        }
        let of_chain = |(kind, what): &(String, String)| kind == "firewall rule" && what.contains(CHAIN);
        ensure!(
            reported.iter().any(of_chain),
            "the firewall rule {CHAIN} was planted, but is not reported: {reported:?}"
        );
        for item in reported {
            let is_planted = of_chain(item) || expected.iter().any(|one| is(item, one));
            ensure!(is_planted, "{} {} is reported, but was not planted", item.0, item.1);
        }
        Ok(())
    }

    /// Checks that the uninstall removed the unit that RKE2's own uninstall removes.
    pub(super) fn check_unit_removed(&self) -> anyhow::Result<()> {
        let there = self.node.run(&["test", "-e", REMOVED_UNIT])?;
        ensure!(!there.status.success(), "the uninstall left {REMOVED_UNIT}");
        Ok(())
    }

    /// Removes everything that is left, as an administrator does after the report.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        self.set_immutable(false)?;
        capture_script(self.node, REMOVE).map(drop)
    }

    fn set_immutable(&self, is_immutable: bool) -> anyhow::Result<()> {
        let file = open(self.file.as_str(), OFlags::RDONLY, Mode::empty()).with_context(|| self.file.to_string())?;
        let mut flags = ioctl_getflags(&file).context("reading the file's attributes")?;
        flags.set(IFlags::IMMUTABLE, is_immutable);
        ioctl_setflags(&file, flags).context("changing the file's attributes")
    }
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        // A failure is fine: the file may have been removed.
        let _ = self.set_immutable(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_must_match_the_planted_residue_exactly() {
        let pair = |kind: &str, what: &str| (kind.to_owned(), what.to_owned());
        let mut reported: BTreeSet<_> = Planted::expected()
            .into_iter()
            .map(|(kind, what)| {
                if kind == "listener" { pair(kind, &format!("{what}(/usr/bin/socat1, 7)")) } else { pair(kind, &what) }
            })
            .collect();
        assert!(Planted::check_reported(&reported).is_err(), "the rule is missing");
        reported.insert(pair("firewall rule", "ip filter FLANNEL-PLANTED"));
        Planted::check_reported(&reported).expect("the report is complete");
        for item in reported.clone() {
            let without = reported.iter().filter(|one| **one != item).cloned().collect();
            assert!(Planted::check_reported(&without).is_err(), "without {item:?}");
        }
        reported.insert(pair("path", "/etc/cni"));
        assert!(
            Planted::check_reported(&reported)
                .expect_err("an item that was not planted")
                .to_string()
                .contains("/etc/cni")
        );
    }

    #[test]
    fn planted_and_expected_residue_match() {
        let unit = format!("{UNIT_FOLDER}{UNIT}");
        for what in [MOUNT, &unit, REMOVED_UNIT, LINK, CHAIN, &PORT.to_string()] {
            assert!(PLANT.contains(what), "{what}");
        }
        assert!(REMOVE.contains(&unit) && !REMOVE.contains(REMOVED_UNIT), "the uninstall itself removes that unit");
    }

    /// RKE2's own script deletes every `rke2-*.service` below these folders.
    #[test]
    fn planted_unit_is_outside_the_folders_of_the_uninstall() {
        for folder in ["/etc/systemd/system/", "/usr/local/lib/systemd/system/"] {
            assert!(!UNIT_FOLDER.starts_with(folder) && !PLANT.contains(&format!("{folder}{UNIT}")), "{folder}");
        }
    }
}
