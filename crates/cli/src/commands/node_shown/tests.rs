use gpuaas_api_types::{
    AppliedFix, DefaultRoute, FileSystem, MachineChange, NodeLedger, NodeProblem, Preflight, WriteLatency,
};

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
        detail: "RKE2 needs inotify.max_user_instances = 8192 (now 128)".to_owned(),
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
        ledger: None,
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
        waiting: None,
        allocation: None,
        created_at: seconds_ago(9_000),
    }
}

#[test]
fn node_is_shown_with_machine_disk_ledger_and_preflight() {
    let ledger = Some(NodeLedger { id: "ef".repeat(16), written: 42, fence: 7 });
    insta::assert_snapshot!(described(&Node { ledger, ..node() }), @r"
    gpu-07   active · connected for 12 s · agent 0.1.0 · Debian 12 · 2×64 cores · 2 TiB · 8×H200
    machine     Linux 6.1.0-18-amd64 x86_64 · Dell Inc. PowerEdge XE9680 · 10.4.0.7 · via 10.4.0.1 dev eth0 (MTU 9000) · clock by chrony · inspected 3 min ago
    disk        /var/lib/rancher/rke2 on /dev/nvme0n1p2 (ext4) · 812 GiB free of 894 GiB · write latency p99 1.2 ms
    ledger      efefefefefef… · 42 starts and ends of tasks · highest fence 7 · at its latest connection
    preflight   ✓ 14 passed   ! 1 warning
      ! RKE2 needs inotify.max_user_instances = 8192 (now 128).  Fix: gpuaas node fix gpu-07 inotify   (inotify_low)
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
        member: Some("agent-2".to_owned()),
        component: Some("agent".to_owned()),
        waiting: None,
        created_at: seconds_ago(9_000),
    });
    changed.region = Some("eu-1".to_owned());
    changed.labels.insert("rack".to_owned(), "b12".to_owned());
    insta::assert_snapshot!(described(&changed), @r"
    gpu-07   active · unreachable for 12 s · agent 0.1.0
    held by     project research · workload infer, member agent-2 · allocation 0198c0de-7a3b-7c11-9b54-0242ac120004 (active)
    changed     it came back on another machine 3 min ago; earlier machine id cdcdcdcdcdcd…
    preflight   ✓ 14 passed   ✗ 1 blocking   ! 1 warning
      ✗ something listens on port 6443 (tcp) already.  Advice of the agent: see what it is and stop it   (port_taken)
          evidence: 0.0.0.0:6443, held by /usr/sbin/haproxy (812)
          found 100 s ago by the preflight of workload infer
      ! RKE2 needs inotify.max_user_instances = 8192 (now 128).  Fix: gpuaas node fix gpu-07 inotify   (inotify_low)
    place       region eu-1 · rack=b12
    id          0198c0de-7a3b-7c11-9b54-0242ac120002
    next        on its machine, as operator: systemctl status gpuaas-agent
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
    gpu-07   active · connected for 12 s · agent 0.1.0
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
