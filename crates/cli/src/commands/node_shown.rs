//! Formats nodes for people.

use std::collections::BTreeMap;

use gpuaas_api_types::{Allocation, DataDisk, FixedNode, Gpu, MachineFacts, Node, NodeFacts, PreflightFinding};

use crate::duration::format_age;

/// Digits of a machine id that are shown: enough to tell two apart.
const ID_SHOWN: usize = 12;

pub(super) fn described(node: &Node) -> String {
    let mut lines = vec![format!("{}   {}", node.name, first_line(node).join(" · "))];
    lines.extend(node.allocation.iter().map(held_line));
    lines.extend(node.agent_problem.iter().flat_map(|problem| {
        let summary = format!(
            "problem     accepts no tasks for {}; the node reports: {} ({})",
            format_age(&problem.since),
            problem.detail,
            problem.code
        );
        [summary, format!("  {}", problem.next)]
    }));
    lines.extend(node.machine_changed.iter().map(|change| {
        let before: String = change.before.chars().take(ID_SHOWN).collect();
        format!("changed     different machine, since {} ago (earlier id: {before}…)", format_age(&change.at))
    }));
    if let Some(facts) = &node.facts {
        lines.extend(facts.machine.iter().map(|machine| machine_line(node, facts, machine)));
        let disk = facts.machine.as_ref().and_then(|machine| machine.data_disk.as_ref());
        lines.extend(disk.map(disk_line));
    }
    lines.extend(preflight_lines(node));
    let labels = node.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let place: Vec<String> = node.region.iter().map(|region| format!("region {region}")).chain(labels).collect();
    lines.extend((!place.is_empty()).then(|| format!("place       {}", place.join(" · "))));
    lines.push(format!("id          {}", node.id));
    lines.extend(next(node).map(|next| format!("next        {next}")));
    lines.join("\n")
}

fn held_line(of: &Allocation) -> String {
    let workload = of.workload.as_ref().map_or_else(|| "no workload".to_owned(), |name| format!("workload {name}"));
    format!("held by     project {} · {workload} · allocation {} ({})", of.project_name, of.id, of.state)
}

/// Returns what to do with a node that cannot be used, if its state tells.
fn next(node: &Node) -> Option<String> {
    let name = &node.name;
    match (node.state.as_str(), node.connectivity.as_str()) {
        ("registered", _) => Some(format!("enroll its machine: gpuaas node enroll {name}")),
        ("needs_reimage", _) => Some(format!("reimage its machine, then: gpuaas node reset {name}")),
        ("retired", _) => Some(format!("delete it: gpuaas node delete {name}")),
        ("enrolled", _) | (_, "stale" | "unreachable") => {
            Some("the operator checks on its machine whether the agent runs: systemctl status gpuaas-agent".to_owned())
        }
        _ => None,
    }
}

pub(super) fn fixed(fixed: &FixedNode) -> String {
    let mut lines = vec![match fixed.changed {
        true => format!("{}: fix {} applied, stored in {}", fixed.node.name, fixed.fix, fixed.path),
        false => format!("{}: fix {} was applied already ({})", fixed.node.name, fixed.fix, fixed.path),
    }];
    lines.extend(fixed.applied.iter().map(|applied| match &applied.before {
        Some(before) => format!("  {}: {before} → {}", applied.name, applied.now),
        None => format!("  {}: {}", applied.name, applied.now),
    }));
    lines.extend(preflight_lines(&fixed.node));
    lines.join("\n")
}

fn first_line(node: &Node) -> Vec<String> {
    let since = format_age(&node.connectivity_since);
    let connectivity = match node.connectivity.as_str() {
        "connected" => format!("connected {since} ago"),
        "never" => "never connected".to_owned(),
        other => format!("{other} for {since}"),
    };
    let mut parts = vec![node.state.clone(), connectivity];
    parts.extend(
        node.clock_skew_seconds
            .filter(|skew| *skew != 0)
            .map(|skew| format!("clock {} s {}", skew.unsigned_abs(), if skew > 0 { "ahead" } else { "behind" })),
    );
    parts.extend(node.agent_version.iter().map(|version| format!("agent {version}")));
    if let Some(facts) = &node.facts {
        parts.push(short_os_name(&facts.os));
        parts.push(cores(facts));
        parts.push(bytes(facts.memory_bytes));
        parts.extend(facts.machine.iter().flat_map(|machine| gpus(&machine.gpus)));
        parts.extend(facts.sandbox.then(|| "sandbox".to_owned()));
    }
    parts
}

/// Shortens `Debian GNU/Linux 12 (bookworm)` to `Debian 12`.
fn short_os_name(name: &str) -> String {
    name.split(" (").next().unwrap_or(name).replace(" GNU/Linux", "")
}

fn cores(facts: &NodeFacts) -> String {
    match &facts.machine {
        Some(of) if of.cpu_sockets > 1 => format!("{}×{} cores", of.cpu_sockets, of.cpu_cores / of.cpu_sockets),
        Some(of) => format!("{} cores", of.cpu_cores),
        None => format!("{} cores", facts.cpus),
    }
}

fn gpus(gpus: &[Gpu]) -> Vec<String> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        let name = gpu.model.as_deref().map_or(gpu.pci_id.as_str(), |model| model.trim_start_matches("NVIDIA "));
        *kinds.entry(name).or_default() += 1;
    }
    kinds.into_iter().map(|(name, many)| format!("{many}×{name}")).collect()
}

fn machine_line(node: &Node, facts: &NodeFacts, machine: &MachineFacts) -> String {
    let mut parts = vec![format!("Linux {} {}", facts.kernel, facts.arch)];
    parts.extend((!machine.product.is_empty()).then(|| machine.product.clone()));
    parts.extend(facts.addresses.first().cloned());
    parts.extend(machine.default_route.as_ref().map(|route| {
        let via = route.gateway.as_ref().map(|gateway| format!("via {gateway} ")).unwrap_or_default();
        format!("{via}dev {} (MTU {})", route.link, route.mtu)
    }));
    let service = machine.clock_service.as_deref();
    parts.extend(match machine.clock.as_str() {
        "synchronized" => Some(format!("clock by {}", service.unwrap_or("an unknown service"))),
        "not_yet" | "no_time_service" => Some("clock not synchronized".to_owned()),
        _ => None,
    });
    parts.extend(node.inspected_at.iter().map(|at| format!("inspected {} ago", format_age(at))));
    format!("machine     {}", parts.join(" · "))
}

fn disk_line(disk: &DataDisk) -> String {
    let on = &disk.file_system;
    let mut parts = vec![
        format!("{} on {} ({})", disk.folder, on.device, on.kind),
        format!("{} free of {}", bytes(on.free_bytes), bytes(on.size_bytes)),
    ];
    parts.extend(
        disk.writes.iter().map(|writes| format!("write latency p99 {:.1} ms", f64::from(writes.p99_us) / 1_000.0)),
    );
    format!("disk        {}", parts.join(" · "))
}

fn preflight_lines(node: &Node) -> Vec<String> {
    let Some(preflight) = &node.preflight else { return Vec::new() };
    let is_blocking = |finding: &&PreflightFinding| finding.severity == "blocking";
    let blocking = preflight.findings.iter().filter(is_blocking).count();
    let warnings = preflight.findings.len() - blocking;
    let mut counts = vec![format!("✓ {} passed", preflight.passed)];
    counts.extend((blocking > 0).then(|| format!("✗ {blocking} blocking")));
    counts
        .extend((warnings > 0).then(|| format!("! {warnings} {}", if warnings == 1 { "warning" } else { "warnings" })));
    let mut lines = vec![format!("preflight   {}", counts.join("   "))];
    for finding in &preflight.findings {
        let mark = if is_blocking(&finding) { "✗" } else { "!" };
        // The control plane made the command; the prose comes from the node and is not trusted.
        let fix = finding
            .command
            .as_ref()
            .map_or_else(|| format!("What to do, reported by the node: {}", finding.fix), |fix| format!("Fix: {fix}"));
        lines.push(format!("  {mark} {}.  {fix}   ({})", finding.detail, finding.check));
        lines.extend(
            finding.evidence.iter().filter(|_| is_blocking(&finding)).map(|seen| format!("      evidence: {seen}")),
        );
        // Without this line, the finding is of the inspection whose age the line `machine` shows.
        lines.extend(finding.found_at.iter().filter(|at| node.inspected_at.as_ref() != Some(*at)).map(|at| {
            let by = finding.workload.as_ref().map(|name| format!("the preflight of workload {name}"));
            format!("      found {} ago by {}", format_age(at), by.as_deref().unwrap_or("an earlier inspection"))
        }));
    }
    lines
}

/// Formats a size in GiB, or in TiB from 1000 GiB.
fn bytes(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes {
        tib if tib >= 1_000 * GIB => format!("{:.0} TiB", tib as f64 / (1_024 * GIB) as f64),
        gib => format!("{:.0} GiB", gib as f64 / GIB as f64),
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_api_types::{AppliedFix, DefaultRoute, FileSystem, MachineChange, NodeProblem, Preflight, WriteLatency};

    use super::*;

    fn seconds_ago(seconds: i64) -> String {
        (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).to_string()
    }

    fn gpu(model: Option<&str>) -> Gpu {
        let model = model.map(str::to_owned);
        Gpu { bus: "0000:3b:00.0".to_owned(), pci_id: "10de:2335".to_owned(), model, memory_bytes: None }
    }

    fn node() -> Node {
        let warning = PreflightFinding {
            check: "inotify_low".to_owned(),
            severity: "warning".to_owned(),
            detail: "inotify.max_user_instances is 128; RKE2 wants 8192".to_owned(),
            evidence: Some("/proc/sys/fs/inotify/max_user_instances: 128".to_owned()),
            fix: "raise it, now and at boot".to_owned(),
            command: Some("gpuaas node fix gpu-07 inotify".to_owned()),
            found_at: None,
            operation: None,
            workload: None,
        };
        let file_system = FileSystem {
            path: "/var".to_owned(),
            device: "/dev/nvme0n1p2".to_owned(),
            kind: "ext4".to_owned(),
            size_bytes: 960_000_000_000,
            free_bytes: 872_000_000_000,
        };
        let writes = Some(WriteLatency { writes: 64, p50_us: 300, p99_us: 1_234, max_us: 1_300 });
        let machine = MachineFacts {
            cpu_model: "Example 9654".to_owned(),
            cpu_sockets: 2,
            cpu_cores: 128,
            swap_bytes: 0,
            product: "Dell Inc. PowerEdge XE9680".to_owned(),
            gpus: vec![gpu(Some("NVIDIA H200")); 8],
            gpu_driver: Some("550.54.15".to_owned()),
            file_systems: Vec::new(),
            data_disk: Some(DataDisk { folder: "/var/lib/rancher/rke2".to_owned(), file_system, writes }),
            default_route: Some(DefaultRoute { gateway: Some("10.4.0.1".into()), link: "eth0".into(), mtu: 9_000 }),
            name_servers: Vec::new(),
            clock: "synchronized".to_owned(),
            clock_service: Some("chrony".to_owned()),
        };
        Node {
            id: "0198c0de-7a3b-7c11-9b54-0242ac120002".to_owned(),
            name: "gpu-07".to_owned(),
            region: None,
            labels: BTreeMap::new(),
            state: "active".to_owned(),
            connectivity: "connected".to_owned(),
            connectivity_since: seconds_ago(12),
            clock_skew_seconds: Some(0),
            agent_version: Some("0.1.0".to_owned()),
            agent_problem: None,
            machine_id: Some("ab".repeat(16)),
            machine_changed: None,
            facts: Some(NodeFacts {
                os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
                kernel: "6.1.0-18-amd64".to_owned(),
                arch: "x86_64".to_owned(),
                cpus: 256,
                memory_bytes: 2 << 40,
                addresses: vec!["10.4.0.7".to_owned()],
                sandbox: false,
                machine: Some(machine),
            }),
            preflight: Some(Preflight { passed: 14, findings: vec![warning] }),
            inspected_at: Some(seconds_ago(200)),
            allocation: None,
            created_at: seconds_ago(9_000),
        }
    }

    #[test]
    fn node_is_shown_with_machine_disk_and_preflight() {
        insta::assert_snapshot!(described(&node()), @r"
        gpu-07   active · connected 12 s ago · agent 0.1.0 · Debian 12 · 2×64 cores · 2 TiB · 8×H200
        machine     Linux 6.1.0-18-amd64 x86_64 · Dell Inc. PowerEdge XE9680 · 10.4.0.7 · via 10.4.0.1 dev eth0 (MTU 9000) · clock by chrony · inspected 3 min ago
        disk        /var/lib/rancher/rke2 on /dev/nvme0n1p2 (ext4) · 812 GiB free of 894 GiB · write latency p99 1.2 ms
        preflight   ✓ 14 passed   ! 1 warning
          ! inotify.max_user_instances is 128; RKE2 wants 8192.  Fix: gpuaas node fix gpu-07 inotify   (inotify_low)
        id          0198c0de-7a3b-7c11-9b54-0242ac120002
        ");
    }

    #[test]
    fn blocking_finding_is_shown_with_evidence_and_a_changed_machine_is_shown() {
        let mut changed = node();
        let blocking = PreflightFinding {
            check: "port_taken".to_owned(),
            severity: "blocking".to_owned(),
            detail: "something listens on port 6443 (tcp) already".to_owned(),
            evidence: Some("0.0.0.0:6443, held by /usr/sbin/haproxy (812)".to_owned()),
            fix: "see what it is and stop it".to_owned(),
            command: None,
            found_at: Some(seconds_ago(100)),
            operation: Some("0198c0de-7a3b-7c11-9b54-0242ac120003".to_owned()),
            workload: Some("infer".to_owned()),
        };
        changed.preflight.iter_mut().for_each(|preflight| preflight.findings.insert(0, blocking.clone()));
        changed.machine_changed = Some(MachineChange { at: seconds_ago(180), before: "cd".repeat(16) });
        changed.facts = None;
        changed.connectivity = "unreachable".to_owned();
        changed.allocation = Some(Allocation {
            id: "0198c0de-7a3b-7c11-9b54-0242ac120004".to_owned(),
            project: "0198c0de-7a3b-7c11-9b54-0242ac120005".to_owned(),
            project_name: "research".to_owned(),
            node: changed.id.clone(),
            node_name: changed.name.clone(),
            state: "active".to_owned(),
            detail: None,
            workload: Some("infer".to_owned()),
            created_at: seconds_ago(9_000),
        });
        changed.region = Some("eu-1".to_owned());
        changed.labels.insert("rack".to_owned(), "b12".to_owned());
        insta::assert_snapshot!(described(&changed), @r"
        gpu-07   active · unreachable for 12 s · agent 0.1.0
        held by     project research · workload infer · allocation 0198c0de-7a3b-7c11-9b54-0242ac120004 (active)
        changed     different machine, since 3 min ago (earlier id: cdcdcdcdcdcd…)
        preflight   ✓ 14 passed   ✗ 1 blocking   ! 1 warning
          ✗ something listens on port 6443 (tcp) already.  What to do, reported by the node: see what it is and stop it   (port_taken)
              evidence: 0.0.0.0:6443, held by /usr/sbin/haproxy (812)
              found 100 s ago by the preflight of workload infer
          ! inotify.max_user_instances is 128; RKE2 wants 8192.  Fix: gpuaas node fix gpu-07 inotify   (inotify_low)
        place       region eu-1 · rack=b12
        id          0198c0de-7a3b-7c11-9b54-0242ac120002
        next        the operator checks on its machine whether the agent runs: systemctl status gpuaas-agent
        ");
    }

    #[test]
    fn agent_problem_is_shown_with_its_reason_and_next_action() {
        let mut problem = node();
        problem.facts = None;
        problem.preflight = None;
        problem.agent_problem = Some(NodeProblem {
            code: "agent_ledger_damaged".to_owned(),
            detail: "/var/lib/gpuaas-agent/ledger.jsonl is missing, and this node is enrolled".to_owned(),
            since: seconds_ago(200),
            next: "enroll it again: run on its machine what this prints: gpuaas node enroll gpu-07".to_owned(),
        });
        insta::assert_snapshot!(described(&problem), @r"
        gpu-07   active · connected 12 s ago · agent 0.1.0
        problem     accepts no tasks for 3 min; the node reports: /var/lib/gpuaas-agent/ledger.jsonl is missing, and this node is enrolled (agent_ledger_damaged)
          enroll it again: run on its machine what this prints: gpuaas node enroll gpu-07
        id          0198c0de-7a3b-7c11-9b54-0242ac120002
        ");
    }

    #[test]
    fn gpus_are_counted_by_model_or_pci_id() {
        let mixed = [gpu(Some("NVIDIA L40S")), gpu(None), gpu(Some("NVIDIA L40S"))];
        assert_eq!(gpus(&mixed), ["1×10de:2335", "2×L40S"]);
    }

    #[test]
    fn fix_is_shown_with_its_changes_and_remaining_findings() {
        let mut node = node();
        node.preflight = Some(Preflight { passed: 15, findings: Vec::new() });
        let applied = AppliedFix {
            name: "fs.inotify.max_user_instances".to_owned(),
            before: Some("128".to_owned()),
            now: "8192".to_owned(),
        };
        let done = FixedNode {
            node,
            fix: "inotify".to_owned(),
            path: "/etc/sysctl.d/60-gpuaas-inotify.conf".to_owned(),
            changed: true,
            applied: vec![applied],
        };
        insta::assert_snapshot!(fixed(&done), @r"
        gpu-07: fix inotify applied, stored in /etc/sysctl.d/60-gpuaas-inotify.conf
          fs.inotify.max_user_instances: 128 → 8192
        preflight   ✓ 15 passed
        ");
        let again = FixedNode { changed: false, applied: Vec::new(), ..done };
        assert!(fixed(&again).starts_with("gpu-07: fix inotify was applied already"));
    }
}
