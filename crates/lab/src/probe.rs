//! Checks of what this machine offers and lacks, and what the lab does about it.
//!
//! Guarantees: changes nothing. A deficiency that the lab cannot make up for is a refusal; everything else is a finding for display.

use std::fs;

use anyhow::Context;

use super::{cgroups, network, packages, place, refusal::Refusal};
use crate::shell;

/// First version of systemd-nspawn with `--notify-ready`, `--network-namespace-path` and cgroup namespaces.
const NSPAWN_MIN: u32 = 247;
/// First version that starts no container on cgroup version 1.
const NSPAWN_WITHOUT_V1: u32 = 258;
/// Capabilities that Kubernetes and systemd use: bit, name, and whether nodes cannot do without it.
const CAPABILITIES: [(u32, &str, bool); 12] = [
    (0, "chown", true),
    (1, "dac_override", true),
    (5, "kill", true),
    (7, "setuid", true),
    (8, "setpcap", true),
    (12, "net_admin", true),
    (18, "sys_chroot", true),
    (19, "sys_ptrace", true),
    (21, "sys_admin", true),
    (24, "sys_resource", false),
    (27, "mknod", true),
    (31, "setfcap", true),
];

/// A property of this machine that matters to a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The property.
    pub(super) found: String,
    /// What the lab does about it.
    pub(super) action: String,
}

impl Finding {
    fn new(found: impl Into<String>, done: impl Into<String>) -> Self {
        Self { found: found.into(), action: done.into() }
    }

    /// One line of text for people.
    pub(super) fn line(&self) -> String {
        format!("{:<46} {}", self.found, self.action)
    }
}

/// Checks everything; the packages are installed.
pub(super) fn machine() -> anyhow::Result<Vec<Finding>> {
    let nspawn = nspawn_version()?;
    let hierarchies = cgroups::hierarchies()?;
    Ok(vec![
        first_process(&fs::read_to_string("/proc/1/comm").unwrap_or_default()),
        nspawn_finding(nspawn, hierarchies.iter().any(|hierarchy| !hierarchy.is_unified))?,
        cgroup_finding(&hierarchies)?,
        capability_finding(&fs::read_to_string("/proc/self/status")?, &hard_limit()?)?,
        tree_finding(),
        bridge_finding()?,
    ])
}

fn first_process(name: &str) -> Finding {
    match name.trim() {
        "systemd" => Finding::new(
            "PID 1 is systemd",
            "nodes are not registered with it: no machined, no slices (--register=no --keep-unit)",
        ),
        other => Finding::new(
            format!("PID 1 is {other}, not systemd"),
            "nodes start without machined (--register=no --keep-unit)",
        ),
    }
}

fn nspawn_version() -> anyhow::Result<u32> {
    let output = shell::capture(packages::program("systemd-nspawn").arg("--version"))?;
    // For example `systemd 252 (252.39-1~deb12u1)`.
    let version = output.split_whitespace().nth(1).and_then(|word| word.split('.').next()?.parse().ok());
    version.with_context(|| {
        format!("no version in the output of systemd-nspawn: {}", output.lines().next().unwrap_or_default())
    })
}

fn nspawn_finding(version: u32, has_v1: bool) -> Result<Finding, Refusal> {
    if version < NSPAWN_MIN {
        return Err(Refusal::Machine(format!(
            "systemd-nspawn {version} is too old; {NSPAWN_MIN} or newer is required"
        )));
    }
    if has_v1 && version >= NSPAWN_WITHOUT_V1 {
        return Err(Refusal::Machine(format!(
            "systemd-nspawn {version} does not support the mounted cgroups of version 1"
        )));
    }
    Ok(Finding::new(format!("systemd-nspawn {version}"), "boots the nodes and reports when each has booted"))
}

fn cgroup_finding(hierarchies: &[cgroups::Hierarchy]) -> Result<Finding, Refusal> {
    let names = |unified: bool| {
        let of = hierarchies.iter().filter(|hierarchy| hierarchy.is_unified == unified);
        of.map(cgroups::Hierarchy::name).collect::<Vec<_>>().join(", ")
    };
    match (names(false), names(true)) {
        (v1, v2) if v1.is_empty() && v2.is_empty() => Err(Refusal::Machine("no cgroups are mounted".to_owned())),
        (v1, _) if v1.is_empty() => {
            Ok(Finding::new("cgroups of version 2", "each node has its own subtree, visible as the root inside"))
        }
        (v1, _) => Ok(Finding::new(
            "cgroups of version 1",
            format!("each node has its own subtree of {v1}, mounted writable inside"),
        )),
    }
}

fn capability_finding(status: &str, files: &str) -> anyhow::Result<Finding> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .context("/proc/self/status lists no capabilities")?;
    let capabilities = u64::from_str_radix(effective.trim(), 16).context("parsing the capabilities")?;
    let lacking = |vital: bool| {
        let of = CAPABILITIES.iter().filter(|(bit, _, is_vital)| *is_vital == vital && capabilities & (1 << *bit) == 0);
        of.map(|(_, name, _)| format!("cap_{name}")).collect::<Vec<_>>().join(", ")
    };
    match (lacking(true), lacking(false)) {
        (vital, _) if !vital.is_empty() => Err(Refusal::Machine(format!("root lacks {vital}")).into()),
        (_, lacking) if lacking.is_empty() => {
            Ok(Finding::new("all capabilities are available", "nodes have all of them"))
        }
        (_, lacking) => Ok(Finding::new(
            format!("{lacking} is missing"),
            format!("nodes have the others; units get at most {files} open files and cannot lower their OOM score"),
        )),
    }
}

fn hard_limit() -> anyhow::Result<String> {
    let limits = fs::read_to_string("/proc/self/limits").context("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .context("/proc/self/limits lists no limit of open files")?;
    Ok(line.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

fn tree_finding() -> Finding {
    let overlay =
        fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.lines().any(|line| line.ends_with("\toverlay")));
    let data = place::DATA;
    if overlay {
        Finding::new("overlayfs", format!("nodes share one tree and write to {data}; their /var/lib is a plain folder"))
    } else {
        Finding::new(
            "no overlayfs (or its module is not loaded)",
            format!("the lab tries it; if that fails, each node gets a copy in {data}"),
        )
    }
}

fn bridge_finding() -> anyhow::Result<Finding> {
    Ok(match network::firewall::needed()?.len() {
        0 => Finding::new("the firewall accepts the nodes' traffic", "no rule is added"),
        count => Finding::new(
            "the firewall may drop the nodes' traffic",
            format!("{count} rules accept traffic from {}", place::BRIDGE),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capability_is_reported_or_refused() {
        let finding = |effective: &str| capability_finding(&format!("Name:\tx\nCapEff:\t{effective}\n"), "20000");
        assert_eq!(finding("000001ffffffffff").expect("all suffice").found, "all capabilities are available");
        assert_eq!(finding("000001fffeffffff").expect("the vital ones suffice").found, "cap_sys_resource is missing");
        let error = finding("00000000a80425fb").expect_err("an unprivileged container lacks vital ones");
        assert!(
            matches!(error.downcast_ref(), Some(Refusal::Machine(why)) if why.contains("cap_net_admin, cap_sys_ptrace, cap_sys_admin")),
            "{error}"
        );
    }

    #[test]
    fn unsuitable_nspawn_version_is_refused() {
        assert!(nspawn_finding(246, false).is_err());
        assert!(nspawn_finding(252, true).is_ok());
        assert!(nspawn_finding(258, true).is_err());
        assert!(nspawn_finding(258, false).is_ok());
    }
}
