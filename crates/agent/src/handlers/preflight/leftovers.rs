//! Checks for leftovers of an earlier cluster, occupied ports and paths, and files that a later uninstall would delete.

use std::collections::BTreeSet;

use camino::Utf8Path;
use gpuaas_host::Protocol;
use gpuaas_model::Check;
use gpuaas_wire::task::{Finding, Severity};

use super::{
    HostSnapshot, looks_at_ports,
    report::{Report, blocking, listed, warning, with_evidence},
};

/// The end of the names of uninstall scripts: RKE2 and K3s install theirs beside their programs.
const UNINSTALL_SCRIPT: &str = "-uninstall.sh";

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    if looks_at_ports(snapshot.task, &snapshot.wants) {
        report.record(Check::PortTaken, ports(snapshot));
    }
    if !snapshot.task.absent_paths.is_empty() {
        report.record(Check::Leftover, paths(snapshot, &snapshot.task.absent_paths, Severity::Blocking));
    }
    if !snapshot.task.endangered_paths.is_empty() {
        report.record(Check::UninstallWouldDelete, paths(snapshot, &snapshot.task.endangered_paths, Severity::Warning));
    }
    if !snapshot.wants.link_prefixes.is_empty() {
        report.record(Check::LeftoverLinks, links(snapshot));
    }
    if !snapshot.wants.mount_prefixes.is_empty() {
        report.record(Check::LeftoverMounts, mounts(snapshot));
    }
    if let (false, Ok(Some(rules))) = (snapshot.wants.firewall_marks.is_empty(), &snapshot.rules) {
        report.record(Check::LeftoverFirewallRules, left_rules(rules));
    }
}

/// Finds the app's ports on which a process of the node listens, on loopback too; and TCP ports that another process holds at the node's
/// address, which is possible on the machine of a sandbox.
fn ports(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let of_others = snapshot.taken.iter().map(|port| (Protocol::Tcp, *port));
    let own = snapshot.listeners.iter().map(|listener| (listener.protocol, listener.address.port()));
    let in_question = own.filter(|(of, port)| match of {
        Protocol::Tcp => snapshot.task.ports.contains(port),
        Protocol::Udp => snapshot.wants.udp_ports.contains(port),
    });
    of_others
        .chain(in_question)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|(of, port)| taken(snapshot, of, port))
        .collect()
}

fn taken(snapshot: &HostSnapshot<'_>, of: Protocol, port: u16) -> Finding {
    let flag = if of == Protocol::Tcp { 't' } else { 'u' };
    let detail = format!("port {port} ({of}) is already in use");
    let fix = format!("find the process (ss -ln{flag}p 'sport = :{port}') and stop it");
    let there = snapshot.listeners.iter().filter(|listener| listener.protocol == of && listener.address.port() == port);
    let listening = there.map(|listener| match &listener.process {
        Some(process) => format!("{}, held by {} ({})", listener.address, process.program, process.pid),
        None => listener.address.to_string(),
    });
    with_evidence(blocking(Check::PortTaken, detail, fix), listed(&listening.collect::<Vec<_>>()))
}

fn paths(snapshot: &HostSnapshot<'_>, paths: &[String], severity: Severity) -> Vec<Finding> {
    let there = paths.iter().filter(|path| !snapshot.empty_disks.contains(*path) && snapshot.tree.own_exists(path));
    let found = there.map(|path| {
        let finding = match severity {
            Severity::Blocking => blocking(
                Check::Leftover,
                format!("{path} is left from an earlier installation"),
                cleanup(snapshot, path),
            ),
            Severity::Warning => warning(
                Check::UninstallWouldDelete,
                format!("{path} exists, and a later uninstall of {} deletes it with its content", snapshot.who()),
                "move files to keep elsewhere",
            ),
        };
        let contents = snapshot.tree.own_names(path);
        let evidence =
            if contents.is_empty() { String::new() } else { format!("{path} contains {}", listed(&contents)) };
        with_evidence(finding, evidence)
    });
    found.collect()
}

/// Returns the command that removes what an earlier installation left at `path`: its own uninstall script if it still exists.
fn cleanup(snapshot: &HostSnapshot<'_>, path: &str) -> String {
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let mut scripts = Vec::new();
    for folder in &snapshot.wants.program_dirs {
        let names = snapshot.tree.own_names(folder).into_iter();
        let found = names.filter(|name| name.ends_with(UNINSTALL_SCRIPT) && is_plain(name));
        scripts.extend(found.map(|name| format!("{folder}/{name}")));
    }
    if scripts.is_empty() {
        return format!("delete it if nothing needs it (rm -r {path}), or have the machine reimaged");
    }
    format!("run its own uninstall script ({}), or have the machine reimaged", listed(&scripts))
}

fn links(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let is_left = |link: &&String| snapshot.wants.link_prefixes.iter().any(|prefix| link.starts_with(prefix));
    let left: Vec<String> = snapshot.links.iter().filter(is_left).cloned().collect();
    let name = left.first()?;
    let detail = format!("network links of an earlier cluster exist: {}", listed(&left));
    Some(blocking(Check::LeftoverLinks, detail, format!("delete them (ip link delete {name}), or reboot")))
}

/// Finds mounts. A mount inside a folder of the app is left from an earlier cluster; a mount of the folder itself is a disk that was
/// mounted there on purpose.
fn mounts(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let is_folder = |mount: &&String| snapshot.wants.mount_prefixes.iter().any(|prefix| Utf8Path::new(mount) == prefix);
    let (own, left): (Vec<&String>, Vec<&String>) = snapshot.mounts.iter().partition(is_folder);
    let disks = own.into_iter().map(|mount| {
        let detail = format!("{mount} is a mount point: an uninstall empties it but cannot remove it");
        warning(Check::LeftoverMounts, detail, "mount the disk elsewhere, or expect the folder to stay")
    });
    let left: Vec<String> = left.into_iter().cloned().collect();
    let leftover = left.first().map(|first| {
        let detail = format!("mounts of an earlier cluster exist: {}", listed(&left));
        blocking(Check::LeftoverMounts, detail, format!("unmount them (umount {first}), or reboot"))
    });
    leftover.into_iter().chain(disks).collect()
}

fn left_rules(rules: &[String]) -> Option<Finding> {
    let detail = format!("the firewall has {} chains and rules of an earlier cluster", rules.len());
    let finding = warning(Check::LeftoverFirewallRules, detail, "reboot, or remove them: iptables-save shows them");
    (!rules.is_empty()).then(|| with_evidence(finding, listed(rules)))
}
