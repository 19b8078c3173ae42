//! `host.residue`: lists what an app left behind, and nothing that belongs to anything else.

use std::time::Duration;

use camino::Utf8Path;
use gpuaas_host::{HostError, Listener, Process, Protocol};
use gpuaas_wire::task::{Residue, ResidueItem, ResidueKind, ResidueReport, TaskFailure};

use super::{artifact_fetch::STAGING, mounts};
use crate::context::{Context, host_failed};

/// Time for processes and ports to end: the kernel closes the ports of a killed process a moment after the script that killed it has ended,
/// without a signal. Processes and ports that remain longer are residue.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Folders in which systemd looks for installed system units.
const UNIT_FOLDERS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Checks for residue. Repeats the check until processes and listeners have ended, or the settle time is over: they end a moment after
/// what ended them.
pub(crate) async fn run(task: Residue, context: Context) -> Result<ResidueReport, TaskFailure> {
    let settle_until = tokio::time::Instant::now() + SETTLE_TIMEOUT.min(context.time_left() / 2);
    loop {
        let report = find_residue(&task, &context).await?;
        let may_end = |item: &ResidueItem| matches!(item.kind, ResidueKind::Port | ResidueKind::Process);
        if !report.items.iter().any(may_end) || tokio::time::Instant::now() >= settle_until {
            return Ok(report);
        }
        context.report_progress("waiting for processes and listeners to end");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn find_residue(task: &Residue, context: &Context) -> Result<ResidueReport, TaskFailure> {
    let host = &context.host;
    let mut found = Found::default();
    // Every app stages artifacts, so the staging directory is always checked.
    for path in task.paths.iter().map(String::as_str).chain([STAGING]) {
        match host.files().exists(Utf8Path::new(path)).await {
            Ok(true) => found.item(ResidueKind::Path, path.to_owned()),
            Ok(false) => {}
            // The check does not follow a link: it reports the link.
            Err(HostError::UnsafePath { at, .. }) => found.item(ResidueKind::Path, at.into_string()),
            Err(error) => return Err(host_failed(error)),
        }
    }
    for mount in mounts::under(host, &task.mount_prefixes).await.map_err(host_failed)? {
        found.item(ResidueKind::Mount, mount);
    }
    let listeners = host.inventory().listeners().await.map_err(host_failed)?;
    for listener in listeners.iter().filter(|listener| is_on_one_of(&task.ports, &task.udp_ports, listener)) {
        found.item(ResidueKind::Port, describe(listener));
    }
    for unit in units(task, context).await? {
        found.item(ResidueKind::Unit, unit);
    }
    // Without a prefix no process can match, so the processes are not listed; the same holds for links and rules.
    if !(task.process_prefixes.is_empty() && task.group_prefixes.is_empty()) {
        found.processes(host.inventory().processes(&[]).await.map_err(host_failed)?, task);
    }
    if !task.link_prefixes.is_empty() {
        found.links(host.inventory().links().await.map_err(host_failed)?, &task.link_prefixes);
    }
    if !task.firewall_marks.is_empty() {
        found.rules(host.inventory().firewall_rules(&task.firewall_marks).await);
    }
    found.report.items.truncate(ResidueReport::ITEMS_MAX);
    Ok(found.report)
}

/// Returns the units that are active or failed, and inactive ones that have a unit file. systemd may remember an inactive unit without a
/// file until the next daemon-reload; this task does not reload, because a reload affects everything else on the machine.
async fn units(task: &Residue, context: &Context) -> Result<Vec<String>, TaskFailure> {
    let host = &context.host;
    let mut present = Vec::new();
    for unit in &task.units {
        let Some(status) = host.units().unit(unit).await.map_err(host_failed)? else { continue };
        let mut is_present = status.active != "inactive";
        for folder in UNIT_FOLDERS.map(Utf8Path::new) {
            is_present = is_present || host.files().exists(&folder.join(unit)).await.map_err(host_failed)?;
        }
        if is_present {
            present.push(unit.clone());
        }
    }
    Ok(present)
}

struct Found {
    report: ResidueReport,
}

impl Default for Found {
    fn default() -> Self {
        Self { report: ResidueReport { items: Vec::new(), unseen: Vec::new() } }
    }
}

impl Found {
    fn item(&mut self, kind: ResidueKind, what: String) {
        let item = ResidueItem { kind, what };
        if !self.report.items.contains(&item) {
            self.report.items.push(item);
        }
    }

    /// Adds the processes of the app, recognized by the path of their program, or by their control group for processes of containers, whose
    /// programs have other paths.
    fn processes(&mut self, processes: Vec<Process>, task: &Residue) {
        let is_left = |process: &Process| {
            let program = Utf8Path::new(&process.program);
            let begins = |name: &str| task.group_prefixes.iter().any(|prefix| name.starts_with(prefix));
            task.process_prefixes.iter().any(|prefix| program.starts_with(prefix))
                || process.cgroup.split('/').any(begins)
        };
        for process in processes.into_iter().filter(is_left) {
            self.item(ResidueKind::Process, format!("{} ({})", process.program, process.pid));
        }
    }

    fn links(&mut self, links: Vec<String>, prefixes: &[String]) {
        let is_left = |link: &String| prefixes.iter().any(|prefix| link.starts_with(prefix));
        links.into_iter().filter(is_left).for_each(|link| self.item(ResidueKind::Link, link));
    }

    /// Adds the rules. Rules that cannot be listed are reported as unchecked, not as clean.
    fn rules(&mut self, rules: Result<Option<Vec<String>>, HostError>) {
        let why = match rules {
            Ok(Some(rules)) => return rules.into_iter().for_each(|rule| self.item(ResidueKind::FirewallRule, rule)),
            Ok(None) => "no program that lists them is installed".to_owned(),
            Err(error) => error.to_string(),
        };
        self.report.unseen.push(format!("firewall rules: {why}"));
    }
}

fn is_on_one_of(tcp: &[u16], udp: &[u16], listener: &Listener) -> bool {
    match listener.protocol {
        Protocol::Tcp => tcp.contains(&listener.address.port()),
        Protocol::Udp => udp.contains(&listener.address.port()),
    }
}

/// Formats a listener like `6443/tcp at 10.4.0.7 (/usr/bin/socat, 812)`.
fn describe(listener: &Listener) -> String {
    let holder = listener.process.as_ref().map(|process| format!(" ({}, {})", process.program, process.pid));
    let protocol = protocol(listener.protocol);
    format!("{}/{protocol} at {}{}", listener.address.port(), listener.address.ip(), holder.unwrap_or_default())
}

/// Returns the protocol's name as it is written after a port.
pub(crate) const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::handlers::test_host::{self, sandbox};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn task() -> Residue {
        Residue {
            paths: texts(&["/etc/cni", "/var/lib/rancher/rke2"]),
            mount_prefixes: texts(&["/run/k3s"]),
            ports: vec![6_443],
            units: Vec::new(),
            process_prefixes: Vec::new(),
            udp_ports: vec![8_472],
            link_prefixes: texts(&["cni0", "cali"]),
            firewall_marks: texts(&["KUBE-"]),
            group_prefixes: texts(&["kubepods"]),
        }
    }

    #[tokio::test]
    async fn only_requested_paths_are_reported_and_a_sandbox_hides_its_machine() {
        let (_folder, host) = sandbox(&[("/var/lib/rancher/rke2/server/token", ""), ("/var/lib/other", "")]);
        let report = find_residue(&task(), &test_host::context(&host)).await.unwrap();
        let item = ResidueItem { kind: ResidueKind::Path, what: "/var/lib/rancher/rke2".to_owned() };
        assert_eq!(report, ResidueReport { items: vec![item], unseen: Vec::new() });
    }

    #[tokio::test]
    async fn staged_artifacts_and_a_symlink_in_a_listed_path_are_residue() {
        let staging = "/var/lib/gpuaas-agent/artifacts";
        let (folder, host) = sandbox(&[("/var/lib/gpuaas-agent/artifacts/0a1b", "x"), ("/mnt/disk/x", "")]);
        std::os::unix::fs::symlink("../../mnt/disk", folder.path().join("var/lib/rancher")).unwrap();
        let report = find_residue(&task(), &test_host::context(&host)).await.unwrap();
        let found: Vec<&str> = report.items.iter().map(|item| item.what.as_str()).collect();
        assert_eq!(found, ["/var/lib/rancher", staging]);
    }

    #[test]
    fn only_matching_links_rules_and_listeners_are_reported() {
        let mut found = Found::default();
        found.links(texts(&["cali12ab", "cni0", "eth0", "lo"]), &task().link_prefixes);
        found.rules(Ok(Some(texts(&["filter: :KUBE-FIREWALL - [0:0]"]))));
        let found_names: Vec<&str> = found.report.items.iter().map(|item| item.what.as_str()).collect();
        assert_eq!(found_names, ["cali12ab", "cni0", "filter: :KUBE-FIREWALL - [0:0]"]);
        let listener =
            |protocol, address: &str, process| Listener { protocol, address: address.parse().unwrap(), process };
        let is_reported =
            |protocol, address| is_on_one_of(&task().ports, &task().udp_ports, &listener(protocol, address, None));
        assert!(is_reported(Protocol::Tcp, "0.0.0.0:6443") && is_reported(Protocol::Udp, "10.4.0.7:8472"));
        assert!(!is_reported(Protocol::Udp, "0.0.0.0:6443") && !is_reported(Protocol::Tcp, "0.0.0.0:22"));
        let process = test_host::process_of("/usr/bin/socat");
        let at: SocketAddr = "10.4.0.7:6443".parse().unwrap();
        let held = listener(Protocol::Tcp, &at.to_string(), Some(process));
        assert_eq!(describe(&held), "6443/tcp at 10.4.0.7 (/usr/bin/socat, 812)");
    }

    #[test]
    fn processes_are_matched_by_program_or_control_group() {
        let process =
            |program: &str, cgroup: &str| Process { cgroup: cgroup.to_owned(), ..test_host::process_of(program) };
        let mut found = Found::default();
        let task = Residue { process_prefixes: texts(&["/var/lib/rancher/rke2"]), ..task() };
        let all = vec![
            process("/var/lib/rancher/rke2/data/x/bin/containerd-shim-runc-v2", "/system.slice/rke2-agent.service"),
            process("/var/lib/rancher/rke2-not/x", "/system.slice/other.service"),
            process("/pause", "/kubepods.slice/kubepods-besteffort.slice/cri-containerd-0a1b.scope"),
            process("/coredns", "/kubepods/burstable/pod1/c1"),
            process("/usr/bin/gpuaas-agent", "/system.slice/gpuaas-agent.service"),
            process("/usr/bin/dash", ""),
        ];
        found.processes(all, &task);
        let found_names: Vec<&str> = found.report.items.iter().map(|item| item.what.as_str()).collect();
        let shim = "/var/lib/rancher/rke2/data/x/bin/containerd-shim-runc-v2 (812)";
        assert_eq!(found_names, [shim, "/pause (812)", "/coredns (812)"]);
    }

    #[test]
    fn rules_that_cannot_be_listed_are_reported_as_unchecked() {
        let failed = HostError::Program { program: "/usr/sbin/nft".into(), message: "it broke".to_owned() };
        for (rules, why) in [(Ok(None), "no program"), (Err(failed), "it broke")] {
            let mut found = Found::default();
            found.rules(rules);
            assert!(found.report.items.is_empty() && found.report.unseen[0].contains(why), "{:?}", found.report);
        }
    }
}
