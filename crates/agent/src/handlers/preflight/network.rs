//! Checks of the default route, MTU, checksum offload, host name and name servers.

use gpuaas_host::survey;
use gpuaas_model::Check;
use gpuaas_wire::task::Finding;

use super::{
    HostSnapshot,
    report::{Report, listed, warning, with_evidence},
};

/// Limits of Kubernetes for a pod's resolver: three name servers, and 32 search domains, of which three are Kubernetes' own.
const NAME_SERVERS_MAX: usize = 3;
const SEARCH_MAX: usize = 32 - 3;
/// File of systemd-resolved that lists the servers behind its stub.
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";
/// Longest label of a host name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    if snapshot.wants.mtu_min > 0 && snapshot.has_own("/proc/net/route") {
        report.record(Check::RouteMissing, route(snapshot));
        if let Some(found) = packets(snapshot) {
            report.record(Check::MtuSmall, found);
        }
    }
    if snapshot.wants.containers {
        report.record(Check::HostName, host_name(snapshot));
        if snapshot.has_own("/sys/class/dmi/id/sys_vendor") {
            report.record(Check::ChecksumOffload, offload(snapshot));
        }
        if snapshot.has_own("/etc/resolv.conf") {
            report.record(Check::ResolverLocal, local_resolver(snapshot));
            report.record(Check::ResolverLimitsExceeded, long_resolver(snapshot));
        }
    }
}

fn route(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let finding = || {
        let detail = "there is no default route, which determines the node's address and the pod network";
        warning(Check::RouteMissing, detail, "add one: ip route add default via ADDRESS")
    };
    snapshot.machine.default_route.is_none().then(finding)
}

/// Checks the MTU of the default route: no answer if the link does not report it; otherwise the finding, if there is one.
fn packets(snapshot: &HostSnapshot<'_>) -> Option<Option<Finding>> {
    let route = snapshot.machine.default_route.as_ref().filter(|route| route.mtu > 0)?;
    let least = snapshot.wants.mtu_min;
    Some((route.mtu < least).then(|| {
        let detail = format!("the MTU of {} is {} bytes; the pod network needs {least}", route.link, route.mtu);
        warning(
            Check::MtuSmall,
            detail,
            format!("set it to the same value on every node: ip link set {} mtu 1500", route.link),
        )
    }))
}

fn offload(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let finding = || {
        let detail = "VMware's network cards may corrupt the checksums of packets between pods on different nodes";
        let fix = "if pings between pods work but connections do not: ethtool -K flannel.1 tx-checksum-ip-generic off";
        with_evidence(
            warning(Check::ChecksumOffload, detail, fix),
            format!("the machine is a {}", snapshot.machine.product),
        )
    };
    snapshot.machine.product.contains("VMware").then(finding)
}

fn host_name(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let name = &snapshot.facts.hostname;
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        plain && !label.is_empty() && label.len() <= LABEL_BYTES_MAX && !label.starts_with('-') && !label.ends_with('-')
    };
    let finding = || {
        let detail = format!("the host name {name:?} is not valid in Kubernetes: use letters a-z, digits, - and dots");
        warning(Check::HostName, detail, "set another one: hostnamectl set-hostname NAME")
    };
    (!name.split('.').all(is_label)).then(finding)
}

/// Finds name servers that only the host can reach: RKE2 then reads the servers behind systemd's stub, and without those configures 8.8.8.8
/// for pods.
fn local_resolver(snapshot: &HostSnapshot<'_>) -> Option<Finding> {
    let is_local = |server: &String| server.starts_with("127.") || server == "::1";
    let resolver = survey::resolver(&snapshot.tree).unwrap_or_default();
    let local: Vec<String> = resolver.name_servers.iter().filter(|server| is_local(server)).cloned().collect();
    if local.is_empty() && !resolver.name_servers.is_empty() {
        return None;
    }
    let behind = snapshot.tree.own_text(BEHIND_STUB).unwrap_or_default();
    let has_others = behind
        .lines()
        .any(|line| line.strip_prefix("nameserver").is_some_and(|rest| !is_local(&rest.trim().to_owned())));
    if has_others {
        return None;
    }
    let what = if local.is_empty() {
        "no name server is configured".to_owned()
    } else {
        format!("{} is reachable only from this host", listed(&local))
    };
    let detail = format!("{what}: pods would use 8.8.8.8");
    let fix = "configure name servers in /etc/resolv.conf that pods can reach";
    Some(with_evidence(
        warning(Check::ResolverLocal, detail, fix),
        format!("/etc/resolv.conf: {}", listed(&resolver.name_servers)),
    ))
}

fn long_resolver(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let resolver = survey::resolver(&snapshot.tree).unwrap_or_default();
    let mut found = Vec::new();
    let mut too_many = |what: &str, names: &[String], most: usize| {
        if names.len() > most {
            let detail = format!("/etc/resolv.conf has {} {what}; pods get only the first {most}", names.len());
            found.push(with_evidence(
                warning(Check::ResolverLimitsExceeded, detail, "remove those that are not needed"),
                listed(names),
            ));
        }
    };
    too_many("name servers", &resolver.name_servers, NAME_SERVERS_MAX);
    too_many("search domains", &resolver.search, SEARCH_MAX);
    found
}
