//! What the platform's app makes of the lines of every switch: code, class and command of the fault, as a start reports it that has ended at
//! its deadline.

use std::{collections::BTreeSet, time::Duration};

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{Code, Fault, FaultClass, Health, MemberState, TaskType, Timestamp};
use gpuaas_planner::{
    App, FailureScope, MachineView, MemberView, ReleaseView, Retry, StepAction, StepKey, StepSpec, WorkloadView,
    test_views,
};
use gpuaas_wire::task::{JournalExcerpt, TaskFailure, UnitReport};

use super::{Facts, Line, SWITCHES, Script, Stage, ordinary, switch::Switch};
use crate::log::quoted;
use crate::settings::Role;

/// Rounds of the repeated lines.
const ROUNDS: usize = 20;
const REPAIR: (FaultClass, &str) = (FaultClass::Repairable, "repair");
const RESUME: (FaultClass, &str) = (FaultClass::Manual, "resume");

/// Switch, code of the fault, and its class with the verb of its command.
const EXPECTED: &[(&str, &str, (FaultClass, &str))] = &[
    ("node-password-rejected", "rke2_node_password_rejected", REPAIR),
    ("duplicate-member-name", "rke2_duplicate_member", RESUME),
    ("server-unreachable", "rke2_server_unreachable", RESUME),
    ("ca-mismatch", "rke2_token_ca_mismatch", REPAIR),
    ("bootstrap-token-mismatch", "rke2_bootstrap_token_mismatch", REPAIR),
    ("config-mismatch", "rke2_config_mismatch", RESUME),
    ("etcd-never-ready", "rke2_etcd_not_ready", REPAIR),
    ("second-server-never-ready", "rke2_etcd_not_ready", REPAIR),
    // It ends by itself; only a start that ends before it is named.
    ("join-unstable", "rke2_server_unreachable", RESUME),
    ("not-a-member", "rke2_not_a_member", RESUME),
    ("cluster-reset-refused", "rke2_cluster_reset_failed", RESUME),
    ("cluster-id-mismatch", "rke2_cluster_id_mismatch", RESUME),
    ("certificate-expired", "rke2_certificate_expired", REPAIR),
    ("clock-skew", "rke2_clock_skew", RESUME),
    // `rke2_clock_skew` if a clock is known to be off.
    ("clock-skew-empty-ca", "rke2_server_unreachable", RESUME),
    ("firewall-rejects", "rke2_network_blocked", RESUME),
    ("address-in-use", "rke2_address_in_use", REPAIR),
    ("slow-disk", "rke2_etcd_slow", RESUME),
    ("etcd-out-of-space", "rke2_etcd_out_of_space", RESUME),
    ("images-missing", "rke2_image_missing", REPAIR),
    ("agent-images-missing", "rke2_image_missing", REPAIR),
    ("images-collected", "rke2_images_evicted", RESUME),
    ("exec-forbidden", "rke2_exec_forbidden", RESUME),
    ("kubelet-exited", "rke2_kubelet_exited", RESUME),
    ("cni-not-initialized", "rke2_network_not_ready", REPAIR),
    ("apiserver-not-synced", "rke2_apiserver_outdated", REPAIR),
    ("memory-cgroup-missing", "rke2_memory_cgroup_missing", RESUME),
    ("overlayfs-refused", "rke2_overlayfs_refused", RESUME),
    ("token-malformed", "rke2_token_malformed", REPAIR),
    ("earlier-ca", "rke2_ca_of_earlier_cluster", REPAIR),
    ("runtime-image-cut-off", "rke2_runtime_image_unavailable", REPAIR),
    ("wrong-interface", "rke2_wrong_interface", REPAIR),
    ("exit-at-once", "rke2_crash_loop", REPAIR),
    ("never-ready", "rke2_not_ready", REPAIR),
];

fn facts(role: Role) -> Facts {
    Facts {
        role,
        node_name: "gpu-1".to_owned(),
        address: "192.0.2.1".to_owned(),
        server: "192.0.2.9:9345".to_owned(),
        data_dir: "/var/lib/rancher/rke2".into(),
        ca_hash: "ab".repeat(32),
    }
}

/// A line as a failure contains it: of the journal, or of `kubelet.log`.
fn text(line: &Line) -> String {
    const TIME: &str = "2026-11-02T03:04:05Z";
    match line {
        Line::Rke2 { level, message, fields } => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!(" {name}={}", quoted(value))).collect();
            format!("time=\"{TIME}\" level={level} msg={}{}", quoted(message), fields.concat())
        }
        Line::Etcd { level, rest } => format!("{{\"level\":\"{level}\",\"ts\":\"{TIME}\",{rest}}}"),
        Line::Bare(text) => text.clone(),
        Line::Kubelet { severity, source, message } => {
            format!("kubelet.log: {severity}1102 03:04:05.123456    1234 {source}] {message}")
        }
    }
}

fn rke2(level: &'static str, message: String) -> Line {
    Line::Rke2 { level, message, fields: Vec::new() }
}

/// The lines of one round of a switch.
fn round(switch: &Switch, facts: &Facts) -> Vec<Line> {
    match (switch.script)(facts) {
        Script::Exits { mut before, fatal } => {
            before.push(rke2("fatal", fatal));
            before
        }
        Script::Refuses(reason) if switch.stage == Stage::Retrieve => {
            vec![rke2("info", format!("Waiting to retrieve agent configuration; server is not ready: {reason}"))]
        }
        Script::Refuses(reason) => {
            vec![rke2("error", format!("Failed to validate connection to cluster at https://127.0.0.1:6444: {reason}"))]
        }
        Script::Repeats(lines) => lines,
        Script::Silent => Vec::new(),
    }
}

/// A failed start of a node with this switch, one line each second.
fn failure(switch: &Switch, role: Role) -> TaskFailure {
    let facts = facts(role);
    let mut lines = ordinary::first(&facts);
    for _ in 0..ROUNDS {
        lines.extend(round(switch, &facts));
        if !matches!(switch.stage, Stage::Start | Stage::Silent) {
            lines.extend(ordinary::waiting(&facts));
        }
    }
    let excerpt = |(second, line): (i64, &Line)| {
        let at = Timestamp::from_millis(1_790_000_000_000 + second * 1_000);
        JournalExcerpt { at, text: text(line) }
    };
    let restarts = if switch.stage == Stage::Start { 3 } else { 0 };
    let unit = UnitReport {
        unit: "rke2.service".into(),
        active: "activating".into(),
        sub: "start".into(),
        result: "success".into(),
        n_restarts: restarts,
        exec_main_status: 0,
        since: Timestamp::from_millis(1),
    };
    let journal = (0..).zip(&lines).map(excerpt).collect();
    TaskFailure { journal, unit: Some(Box::new(unit)), ..TaskFailure::new(Code::TaskTimedOut, "it failed") }
}

fn member(name: &str, number: u128, skew: i64) -> MemberView {
    let health = Health::Progressing;
    let of = test_views::member(name, number, MemberState::Joining { since: Timestamp::from_millis(1) });
    let address = format!("192.0.2.{number}");
    let machine = MachineView { address, clock_skew_seconds: Some(skew), ..of.machine };
    MemberView { machine, health, own_health: health, ..of }
}

/// The diagnosis of a running workload's member with this switch; the agent's clock is off by so many seconds.
fn diagnosed(switch: &Switch, role: Role, skew: i64) -> Fault {
    let workload = WorkloadView {
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: Vec::new() },
        ..test_views::workload(vec![member("server-1", 1, 0), member("agent-1", 2, skew)])
    };
    let member = &workload.members[usize::from(role == Role::Agent)];
    let node = member.place.node().expect("a node");
    let start = StepAction::NodeTask { node, task: TaskType::Rke2Start };
    let step = StepSpec::new(StepKey::of(&member.name, "start"), "agent_joining", start, Duration::from_secs(600));
    let step = StepSpec { member: Some(member.id), retry: Retry::SLOW, scope: FailureScope::Member, ..step };
    Rke2::default().diagnose(&step, &failure(switch, role), &workload)
}

#[test]
fn every_switch_is_named_by_the_platform_with_its_class_and_command() {
    for switch in SWITCHES {
        let (_, code, (class, verb)) =
            EXPECTED.iter().find(|(name, ..)| *name == switch.name).unwrap_or_else(|| panic!("{}", switch.name));
        for role in [Role::Server, Role::Agent].into_iter().filter(|role| switch.roles.include(*role)) {
            let fault = diagnosed(switch, role, 0);
            let what = format!("{} as {}: {fault:?}", switch.name, role.name());
            assert_eq!((fault.code.as_str(), fault.class), (*code, *class), "{what}");
            let command = match (*verb, role) {
                ("repair", Role::Server) => "gpuaas workload repair train --scope control-plane",
                ("repair", Role::Agent) => "gpuaas workload repair train --scope member --member agent-1",
                _ => "gpuaas workload resume train",
            };
            assert_eq!(fault.next.command.as_deref(), Some(command), "{what}");
        }
    }
    let known: BTreeSet<&str> = SWITCHES.iter().map(|switch| switch.name).collect();
    assert!(EXPECTED.iter().all(|(name, ..)| known.contains(name)), "a switch was renamed");
}

#[test]
fn text_of_a_token_is_blamed_on_a_clock_that_is_off() {
    for name in ["clock-skew", "clock-skew-empty-ca", "ca-mismatch"] {
        let switch = SWITCHES.iter().find(|switch| switch.name == name).expect("a switch");
        let fault = diagnosed(switch, Role::Agent, 900);
        assert_eq!((fault.code.as_str(), fault.class), ("rke2_clock_skew", FaultClass::Manual), "{name}");
        assert!(fault.next.text.contains("NTP on gpu-2"), "{name}: {:?}", fault.next);
    }
}
