//! Wrong clocks, failed calls to the cluster, services that are down, and failures without a name.

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{Code, Fault, FaultClass, Health, Lifecycle, MemberState, Timestamp};
use gpuaas_planner::{App, StepAction};
use gpuaas_wire::task::{TaskFailure, UnitReport};

use crate::{AGENT, SERVER, diagnose, diagnose_failure, failure, start_step, step, workload};

const MISMATCH: &str = "level=error msg=\"token CA hash does not match the Cluster CA certificate hash: 8f != 55\"";

/// The diagnosis of a start of the agent that ended with this line while a clock is off by so many seconds.
fn with_skew(member: usize, seconds: Option<i64>, line: &str) -> Fault {
    let mut workload = workload(Lifecycle::Running);
    workload.members[member].machine.clock_skew_seconds = seconds;
    Rke2::default().diagnose(&start_step(&workload, AGENT), &failure(Code::HostFailed, &[line]), &workload)
}

#[test]
fn wrong_clock_is_named_before_a_token() {
    for (member, seconds, says) in [
        (AGENT, -301, "agent-1: the clock of gpu-2 is 301 s behind the control plane's"),
        (SERVER, 900, "agent-1: the clock of gpu-1 is 900 s ahead of the control plane's"),
    ] {
        let fault = with_skew(member, Some(seconds), MISMATCH);
        assert_eq!((fault.code.as_str(), fault.class), ("rke2_clock_skew", FaultClass::Manual));
        assert_eq!(fault.summary, says);
        let node = if member == AGENT { "gpu-2" } else { "gpu-1" };
        assert_eq!(fault.next.text, format!("ask the operator to set the clock by NTP on {node}, then resume"));
        assert!(fault.evidence.expect("evidence").text.contains("does not match"));
    }
    for seconds in [None, Some(0), Some(300), Some(-300)] {
        assert_eq!(with_skew(AGENT, seconds, MISMATCH).code, "rke2_token_ca_mismatch", "{seconds:?}");
    }
}

#[test]
fn wrong_clock_explains_only_what_a_clock_can_cause() {
    let after = "x509: certificate has expired or is not yet valid: current time 2027-01-02 is after 2026-11-02";
    assert_eq!(with_skew(AGENT, Some(900), after).code, "rke2_clock_skew");
    assert_eq!(with_skew(AGENT, Some(1), after).code, "rke2_certificate_expired");
    let unread = "token CA hash does not match: 8f != e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(with_skew(AGENT, Some(900), unread).code, "rke2_clock_skew");
    assert_eq!(with_skew(AGENT, None, unread).code, "rke2_server_unreachable");
    let unreachable = "failed to get CA certs: EOF";
    assert_eq!(with_skew(AGENT, Some(900), unreachable).code, "rke2_server_unreachable");
    let password = "Node password rejected, duplicate hostname";
    assert_eq!(with_skew(AGENT, Some(900), password).code, "rke2_node_password_rejected");
}

fn call(name: &str, member: usize, lifecycle: Lifecycle, code: Code, message: &str) -> Fault {
    let workload = workload(lifecycle);
    let step = step(&workload, member, "call", StepAction::ClusterCall { call: name.to_owned() });
    Rke2::default().diagnose(&step, &TaskFailure::new(code, message), &workload)
}

#[test]
fn kube_node_that_is_not_ready_at_the_deadline_is_named_by_its_condition() {
    let message = "192.0.2.1:6443 on gpu-1: not ready after 300 s: KubeletNotReady container runtime network not ready: \
                   NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized";
    let fault = call("kube_node_ready", AGENT, Lifecycle::Running, Code::ClusterNotReady, message);
    assert_eq!((fault.code.as_str(), fault.class), ("rke2_network_not_ready", FaultClass::Repairable));
    let command = "gpuaas workload repair train --scope member --member agent-1";
    assert_eq!(fault.next.command.as_deref(), Some(command));
    let other = call("kube_node_ready", AGENT, Lifecycle::Running, Code::ClusterNotReady, "no KubeNode yet");
    assert_eq!((other.code.as_str(), other.class), ("cluster_not_ready", FaultClass::Retryable));
    assert_eq!(other.next.text, "resume: the step is repeated");
}

#[test]
fn drains_and_missing_kube_nodes_have_their_own_next_actions() {
    let pods = "web/api-7f9 is held by budget web/api, which allows 0 disruptions";
    let blocked = call("drain_kube_node", AGENT, Lifecycle::Running, Code::DrainBlocked, pods);
    assert_eq!((blocked.code.as_str(), blocked.class), ("drain_blocked", FaultClass::Manual));
    assert_eq!(blocked.summary, format!("agent-1: {pods}"));
    assert!(blocked.next.text.contains("PodDisruptionBudget") && blocked.next.text.contains("uncordon-member"));
    let refused =
        call("drain_kube_node", AGENT, Lifecycle::Running, Code::DrainRefused, "batch/job-1 has no controller");
    assert_eq!((refused.code.as_str(), refused.class), ("drain_refused", FaultClass::Manual));
    assert!(refused.next.text.contains("the flag that permits their loss"), "{:?}", refused.next.text);
    for fault in [&blocked, &refused] {
        assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload resume train"));
    }
    let missing = call("label_kube_node", AGENT, Lifecycle::Running, Code::KubeNodeMissing, "no KubeNode gpu-2");
    assert_eq!(missing.class, FaultClass::Repairable);
    let command = "gpuaas workload repair train --scope member --member agent-1";
    assert_eq!(missing.next.command.as_deref(), Some(command));
}

#[test]
fn member_that_is_being_removed_is_not_repaired() {
    let mut workload = workload(Lifecycle::Running);
    workload.members[AGENT].state = MemberState::Removing { since: Timestamp::from_millis(1) };
    let step = step(&workload, AGENT, "call", StepAction::ClusterCall { call: "cordon_kube_node".to_owned() });
    let failure = TaskFailure::new(Code::KubeNodeMissing, "no KubeNode gpu-2");
    let next = Rke2::default().diagnose(&step, &failure, &workload).next;
    assert_eq!(next.command.as_deref(), Some("gpuaas workload resume train"));
}

fn judged(
    member: usize,
    lifecycle: Lifecycle,
    (active, sub): (&str, &str),
    n_restarts: u32,
) -> (Health, Option<Fault>) {
    let mut workload = workload(lifecycle);
    workload.members[member].state = MemberState::Ready { since: Timestamp::from_millis(1) };
    let report = UnitReport {
        unit: "rke2-agent.service".into(),
        active: active.into(),
        sub: sub.into(),
        result: "exit-code".into(),
        n_restarts,
        exec_main_status: 1,
        since: Timestamp::from_millis(1),
    };
    Rke2::default().judge(&workload.members[member], &workload, &report)
}

#[test]
fn service_that_starts_is_awaited_and_one_that_is_restarted_is_down() {
    let code = |state, n_restarts| {
        let (health, fault) = judged(AGENT, Lifecycle::Running, state, n_restarts);
        assert_eq!(health, Health::Degraded, "{state:?}");
        fault.map(|fault| fault.code)
    };
    for sub in ["start-pre", "start", "start-post"] {
        assert_eq!(code(("activating", sub), 0), None, "its node boots: {sub}");
        assert_eq!(code(("activating", sub), 1).as_deref(), Some("rke2_service_down"), "it has ended before: {sub}");
    }
    for state in [("activating", "auto-restart"), ("inactive", "dead"), ("failed", "failed"), ("deactivating", "stop")]
    {
        assert_eq!(code(state, 0).as_deref(), Some("rke2_service_down"), "{state:?}");
    }
}

#[test]
fn service_that_is_down_is_repaired_once_the_workload_runs() {
    assert_eq!(judged(AGENT, Lifecycle::Running, ("active", "running"), 3), (Health::Healthy, None));
    for (member, lifecycle, command) in [
        (AGENT, Lifecycle::Running, "gpuaas workload repair train --scope member --member agent-1"),
        (SERVER, Lifecycle::Running, "gpuaas workload repair train --scope control-plane"),
        (AGENT, Lifecycle::Deploying, "gpuaas workload logs train --member agent-1"),
        // A repair is refused there.
        (AGENT, Lifecycle::Stopping, "gpuaas workload resume train"),
        (SERVER, Lifecycle::Stopped, "gpuaas workload resume train"),
    ] {
        let (health, fault) = judged(member, lifecycle, ("activating", "auto-restart"), 3);
        let fault = fault.expect("a fault");
        assert_eq!((health, fault.code.as_str()), (Health::Degraded, "rke2_service_down"));
        assert_eq!(fault.next.command.as_deref(), Some(command));
        assert!(fault.evidence.expect("evidence").text.contains("auto-restart"));
    }
}

#[test]
fn crash_loop_and_slow_start_are_told_apart_without_symptoms() {
    let silent = diagnose(AGENT, Lifecycle::Running, &["not running in CIS mode"]);
    assert_eq!((silent.code.as_str(), silent.class), ("rke2_not_ready", FaultClass::Repairable));
    let unit = UnitReport {
        unit: "u".into(),
        active: "activating".into(),
        sub: "auto-restart".into(),
        result: "exit-code".into(),
        n_restarts: 3,
        exec_main_status: 1,
        since: Timestamp::from_millis(1),
    };
    for line in ["level=fatal msg=boom", "FATA[0003] boom"] {
        let lines = [line, "level=info msg=\"Stopped tunnel\""];
        let looping = TaskFailure { unit: Some(Box::new(unit.clone())), ..failure(Code::HostFailed, &lines) };
        let fault = diagnose_failure(AGENT, Lifecycle::Running, &looping);
        assert_eq!((fault.code.as_str(), fault.evidence.expect("evidence").text.as_str()), ("rke2_crash_loop", line));
    }
    let empty = diagnose(AGENT, Lifecycle::Deploying, &[""; 0]);
    assert_eq!(empty.evidence.expect("evidence").text, "it failed");
    assert_eq!(empty.next.command.as_deref(), Some("gpuaas workload resume train"));
}
