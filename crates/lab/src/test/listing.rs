//! The content of a machine as its own tools list it, to verify the platform's reports of residue.
//!
//! Guarantees: independent of the platform's detection, and based on other programs. Things that a machine changes by itself are excluded
//! by name, here and by the callers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Context, ensure};

use crate::node::Node;

/// Listed things by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineListing(BTreeMap<String, BTreeSet<String>>);

/// Folders in memory, and those that systemd, journald and Debian's timers write to.
const VOLATILE_FOLDERS: [&str; 10] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/var/tmp",
    "/var/log/journal",
    "/var/lib/systemd/timers",
    "/var/lib/apt",
    "/var/backups",
];

/// Lists everything, one line each: kind and thing. Its arguments are folders to exclude.
const LIST: &str = r#"
set -e
first=$1; shift
leave_out="-path $first"
for folder; do leave_out="$leave_out -o -path $folder"; done
for top in / /var/lib; do
    find "$top" -xdev \( $leave_out \) -prune -o -print | sed 's/^/path /'
done
findmnt --raw --noheadings --output TARGET | grep -v -e '^/proc' -e '^/sys' -e '^/dev' -e '^/run/credentials' | sed 's/^/mount /'
ip -oneline link show | sed 's/^[0-9]*: \([^:@]*\).*/link \1/'
ss --no-header --listening --numeric --tcp --udp | awk '{ print "listener " $1 " " $5 }'
systemctl list-unit-files --plain --no-legend | awk '{ print "unit " $1 }'
for program in iptables-save ip6tables-save; do
    $program | sed -n -e 's/^\(:[^ ]* -\).*/rule \1/p' -e 's/^-A/rule -A/p'
done
getent passwd | sed 's/:.*//; s/^/user /'
getent group | sed 's/:.*//; s/^/group /'
for exe in /proc/[0-9]*/exe; do
    readlink "$exe" || true
done | sed -n -e 's#^/var/lib/rancher#process &#p' -e 's#^/usr/local#process &#p' -e 's#^/usr/bin/gpuaas#process &#p'
"#;

impl MachineListing {
    /// Lists a machine's content except these folders.
    pub(crate) fn read(node: &Node, excluded: &[&str]) -> anyhow::Result<Self> {
        let output = node.capture(&[&["sh", "-c", LIST, "sh"][..], &VOLATILE_FOLDERS, excluded].concat())?;
        let left = Self::parse(&output);
        for kind in ["path", "mount", "link", "unit", "user"] {
            ensure!(left.0.contains_key(kind), "{} lists no {kind}", node.name());
        }
        Ok(left)
    }

    fn parse(listing: &str) -> Self {
        let mut left = Self::default();
        for (kind, what) in listing.lines().filter_map(|line| line.split_once(' ')) {
            left.0.entry(kind.to_owned()).or_default().insert(what.to_owned());
        }
        left
    }

    /// Returns what exists now and did not exist before.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut new = Self::default();
        for (kind, things) in &self.0 {
            let known = before.of(kind);
            let things: BTreeSet<String> = things.iter().filter(|what| !known.contains(*what)).cloned().collect();
            if !things.is_empty() {
                new.0.insert(kind.clone(), things);
            }
        }
        new
    }

    /// Returns the things of a kind.
    pub(crate) fn of(&self, kind: &str) -> BTreeSet<String> {
        self.0.get(kind).cloned().unwrap_or_default()
    }

    /// Checks that exactly the things of `before` exist.
    pub(crate) fn check_same(&self, before: &Self, node: &Node) -> anyhow::Result<()> {
        let (left, lost) = (self.since(before), before.since(self));
        ensure!(left.is_empty(), "left behind on {}:\n{left}", node.name());
        ensure!(lost.is_empty(), "missing on {}:\n{lost}", node.name());
        Ok(())
    }

    /// Reports whether nothing is listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the residue reported by the platform, as kind and name, is exactly this.
    pub(crate) fn check_reported(&self, reported: &BTreeSet<(String, String)>) -> anyhow::Result<()> {
        let reported_of = |kind: &str| -> BTreeSet<&String> {
            reported.iter().filter(|(of, _)| of == kind).map(|(_, what)| what).collect()
        };
        for (kind, what) in reported {
            ensure!(self.has(kind, what), "{kind} {what} is reported, but the machine's own tools list only:\n{self}");
        }
        for (kind, things) in &self.0 {
            for what in things {
                let kind = if kind == "rule" { "firewall rule" } else { kind };
                let is_reported = reported_of(kind).into_iter().any(|reported| is_same(kind, what, reported))
                    || kind == "path" && reported_of("unit").into_iter().any(|unit| is_file_of(what, unit));
                ensure!(is_reported, "the machine's own tools list {kind} {what}, which is not reported: {reported:?}");
            }
        }
        Ok(())
    }

    fn has(&self, kind: &str, reported: &str) -> bool {
        let own = if kind == "firewall rule" { "rule" } else { kind };
        self.of(own).iter().any(|what| is_same(kind, what, reported))
    }
}

/// Reports whether a listed thing and a reported one are the same or belong together.
fn is_same(kind: &str, listed: &str, reported: &str) -> bool {
    let below = |path: &str, folder: &str| path == folder || path.starts_with(&format!("{folder}/"));
    match kind {
        // The platform reports the topmost path that an uninstall should have removed.
        "path" => below(listed, reported) || below(reported, listed),
        // Listed `tcp 0.0.0.0:9345` is reported as `9345/tcp at 0.0.0.0 (/usr/bin/socat, 812)`.
        "listener" => {
            let parts = listed.split_once(' ').and_then(|(protocol, at)| Some((protocol, at.rsplit_once(':')?)));
            parts.is_some_and(|(protocol, (address, port))| {
                let address = if address == "*" { "::" } else { address.trim_matches(['[', ']']) };
                format!("{reported} ").starts_with(&format!("{port}/{protocol} at {address} "))
            })
        }
        // Rules are reported in nftables' syntax and listed in that of iptables; chain names are the same.
        "firewall rule" => {
            let chains = chains(listed);
            !chains.is_empty() && chains == self::chains(reported)
        }
        _ => listed == reported,
    }
}

/// Reports whether a path is a unit file of this unit: a report of either covers both.
fn is_file_of(path: &str, unit: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folder, name)| name == unit && folder.ends_with("/systemd/system"))
}

/// Names of custom chains: capitals with an inner hyphen.
fn chains(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-';
    let words = text.split(|c: char| !is_of_name(c));
    words.filter(|word| word.trim_matches('-').contains('-')).map(|word| word.trim_matches('-')).collect()
}

impl fmt::Display for MachineListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, things) in &self.0 {
            for what in things {
                writeln!(f, "    {kind} {what}")?;
            }
        }
        Ok(())
    }
}

/// Parses the evidence of a residue fault: `path /a, mount /b, listener 9345/tcp at 0.0.0.0 (/usr/bin/socat, 812)`.
pub(crate) fn parse_residue(evidence: &str) -> anyhow::Result<BTreeSet<(String, String)>> {
    const KINDS: [&str; 7] = ["path", "mount", "listener", "unit", "process", "link", "firewall rule"];
    let mut items: Vec<String> = Vec::new();
    for part in evidence.split(", ") {
        let begins = KINDS.iter().any(|kind| part.starts_with(&format!("{kind} ")));
        match items.last_mut() {
            // A reported item may contain commas.
            Some(item) if !begins => item.push_str(&format!(", {part}")),
            _ => items.push(part.to_owned()),
        }
    }
    let item = |item: &String| {
        let kind = KINDS.iter().find(|kind| item.starts_with(&format!("{kind} ")));
        let kind = kind.with_context(|| format!("unknown kind of residue: `{item}`"))?;
        Ok(((*kind).to_owned(), item[kind.len() + 1..].to_owned()))
    };
    items.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "path /var/lib/rancher\npath /var/lib/rancher/rke2\npath /var/lib/rancher/rke2/planted\nmount /var/lib/kubelet/p\n\
                          link cali0p\nlistener tcp 0.0.0.0:9345\nunit rke2-server.service\npath /etc/systemd/system/rke2-server.service\n\
                          rule :FLANNEL-P -\nrule -A INPUT -j FLANNEL-P";
    const REPORTED: &str = "path /var/lib/rancher/rke2, mount /var/lib/kubelet/p, listener 9345/tcp at 0.0.0.0 (/usr/bin/socat1, 812), \
                        unit rke2-server.service, link cali0p, firewall rule ip filter FLANNEL-P, firewall rule ip filter INPUT: jump FLANNEL-P";

    fn compare(listed: &str, evidence: &str) -> Result<(), String> {
        let reported = parse_residue(evidence).expect("the evidence is valid");
        MachineListing::parse(listed).check_reported(&reported).map_err(|error| error.to_string())
    }

    #[test]
    fn reported_and_listed_residue_match_in_different_notations() {
        assert_eq!(compare(LISTED, REPORTED), Ok(()));
    }

    #[test]
    fn difference_between_report_and_listing_is_named() {
        // A path above or below a reported one belongs to it, and rules are reported by chain.
        let is_of_one =
            |line: &str| line.ends_with("/rancher") || line.ends_with("/planted") || line.contains("FLANNEL");
        for line in LISTED.lines().filter(|line| !is_of_one(line)) {
            let (kind, what) = line.split_once(' ').expect("kind and name");
            let without: Vec<&str> = LISTED
                .lines()
                .filter(|of| !(of.starts_with(line) || kind == "path" && of.starts_with("path")))
                .collect();
            let why = compare(&without.join("\n"), REPORTED).expect_err("it is reported and not listed");
            assert!(why.contains(kind) && why.contains("is reported"), "{why}");
            let more = format!(
                "{LISTED}\n{kind} {}",
                what.replace("9345", "9346") + if kind == "listener" { "" } else { "-more" }
            );
            let why = compare(&more, REPORTED).expect_err("it is listed and not reported");
            assert!(why.contains("is not reported"), "{kind}: {why}");
        }
        assert!(
            compare(
                LISTED,
                &REPORTED.replace(
                    "firewall rule ip filter FLANNEL-P, firewall rule ip filter INPUT: jump FLANNEL-P",
                    "path /var/lib/rancher/rke2"
                )
            )
            .is_err()
        );
    }

    #[test]
    fn earlier_content_does_not_count() {
        let (before, after) =
            (MachineListing::parse("path /a\nlink eth0"), MachineListing::parse("path /a\npath /b\nlink eth0"));
        assert_eq!(after.since(&before), MachineListing::parse("path /b"));
        assert!(before.since(&after).is_empty());
    }
}
