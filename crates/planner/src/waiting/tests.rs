use gpuaas_model::{
    AllocationId, AllocationState, Connectivity, Evidence, Fault, FaultClass, Health, Lifecycle, MemberEvent,
    MemberState, MemberStateName, NextAction, NodeId, NodeState, OperationId, OperationState, Recovery, StepState,
    TaskId, TaskState, TaskType, Timestamp, Waiting, WaitingFrom,
};

use super::*;
use crate::{
    plan::{StepAction, StepKey, StepSpec},
    test_steps,
};

const AT: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const LATER: Timestamp = Timestamp::from_millis(1_790_000_060_000);

fn id() -> uuid::Uuid {
    uuid::Uuid::from_u128(7)
}

fn fault(class: FaultClass) -> Fault {
    Fault {
        code: "rke2_crash_loop".into(),
        class,
        summary: "agent-1: RKE2 ends again and again".into(),
        evidence: Some(Evidence::new("journal rke2-agent", Some(AT), "address already in use")),
        next: NextAction::repair_member("it starts again", "train", "agent-1"),
    }
}

fn step(spec: &StepSpec, state: StepState) -> StepRow<'_> {
    let has_begun = state != StepState::Pending;
    StepRow {
        operation: OperationId::from_uuid(id()),
        accepted_at: AT,
        spec,
        state,
        attempts: u32::from(has_begun),
        not_before: (state == StepState::Backoff).then_some(LATER),
        detail: has_begun.then_some("kubelet not ready"),
        fault: None,
        started_at: has_begun.then_some(AT),
        deadline_at: has_begun.then_some(LATER),
        ended_at: state.is_final().then_some(LATER),
    }
}

fn on_node(key: &str, task: TaskType) -> StepSpec {
    let action = StepAction::NodeTask { node: NodeId::from_uuid(id()), task };
    StepSpec { action, ..test_steps::step(key, "joining") }
}

fn operation_row<'a>(
    state: OperationState,
    fault: Option<&'a Fault>,
    current: Option<StepRow<'a>>,
) -> OperationRow<'a> {
    OperationRow {
        id: OperationId::from_uuid(id()),
        workload: "train",
        state,
        cancel_requested: false,
        fault,
        created_at: AT,
        started_at: Some(AT),
        ended_at: state.is_final().then_some(LATER),
        current,
    }
}

fn workload_row(lifecycle: Lifecycle, open: Option<Open<'_>>) -> WorkloadRow<'_> {
    let (health, recovery) = (Health::Healthy, Recovery::None);
    WorkloadRow { name: "train", lifecycle, health, recovery, fault: None, updated_at: AT, open }
}

/// Returns a member's state by its name. A new state does not compile here without its data.
fn member_state(name: MemberStateName) -> MemberState {
    use {MemberState as S, MemberStateName as N};
    let since = AT;
    match name {
        N::Pending => S::Pending,
        N::Preparing => S::Preparing { since },
        N::Bootstrapping => S::Bootstrapping { since },
        N::Joining => S::Joining { since },
        N::Ready => S::Ready { since },
        N::Stopped => S::Stopped { since },
        N::Draining => S::Draining { since },
        N::Drained => S::Drained { since },
        N::Removing => S::Removing { since },
        N::Removed => S::Removed,
        N::Failed => S::Failed { since, fault: fault(FaultClass::Repairable) },
    }
}

fn member_row(state: &MemberState, is_busy: bool) -> MemberRow<'_> {
    MemberRow {
        name: "agent-1",
        workload: "train",
        state,
        health: Health::Healthy,
        fault: None,
        reported_by: None,
        created_at: AT,
        updated_at: AT,
        is_busy,
        current: None,
    }
}

/// Fails unless a state is explained completely, or has settled and is not.
fn assert_explained(what: impl std::fmt::Display, settled: bool, waiting: Option<&Waiting>) {
    match waiting {
        None => assert!(settled, "{what} explains nothing"),
        Some(waiting) => {
            assert!(!settled, "{what} has settled and waits for {}", waiting.what);
            assert_eq!(waiting.missing(), None, "{what}: {waiting:?}");
        }
    }
}

#[test]
fn every_state_of_a_workload_is_explained_unless_it_settled() {
    let spec = on_node("agent-1/start", TaskType::Rke2Start);
    for &lifecycle in Lifecycle::ALL {
        let settled = matches!(lifecycle, Lifecycle::Running | Lifecycle::Decommissioned);
        assert_explained(lifecycle, settled, workload(&workload_row(lifecycle, None)).as_ref());
        for state in [OperationState::Queued, OperationState::Running, OperationState::Waiting] {
            for current in [None, Some(step(&spec, StepState::Running))] {
                let open = Open { state, since: AT, current };
                let waiting = workload(&workload_row(lifecycle, Some(open)));
                assert_explained(format_args!("{lifecycle} during {state}"), false, waiting.as_ref());
            }
        }
        for &recovery in Recovery::ALL {
            let of = WorkloadRow { recovery, health: Health::Degraded, ..workload_row(lifecycle, None) };
            let settled = lifecycle == Lifecycle::Decommissioned;
            assert_explained(format_args!("{lifecycle} {recovery}"), settled, workload(&of).as_ref());
        }
    }
}

#[test]
fn every_state_of_an_operation_is_explained_unless_it_ended() {
    let (spec, manual) = (on_node("agent-1/start", TaskType::Rke2Start), fault(FaultClass::Manual));
    for &state in OperationState::ALL {
        let settled = state.is_final() && state != OperationState::NeedsAttention;
        for fault in [None, Some(&manual)] {
            for current in [None, Some(step(&spec, StepState::Running)), Some(step(&spec, StepState::Backoff))] {
                for cancel_requested in [false, true] {
                    let of = OperationRow { cancel_requested, ..operation_row(state, fault, current) };
                    assert_explained(state, settled, operation(&of).as_ref());
                }
            }
        }
    }
    let of = operation(&operation_row(OperationState::NeedsAttention, Some(&manual), None)).unwrap();
    assert_eq!(
        (of.what.as_str(), of.from, of.since),
        ("the cause of its fault to be removed", WaitingFrom::Tenant, LATER)
    );
    assert_eq!(of.evidence.as_deref(), Some("agent-1: RKE2 ends again and again: address already in use"));
    assert_eq!(of.next, manual.next);
}

#[test]
fn every_state_of_a_step_is_explained_unless_it_ended() {
    let mut waits = on_node("agent-1/start", TaskType::Rke2Start);
    waits.needs = ["server-1/start", "a/1", "a/2", "a/3", "a/4"].map(StepKey::named).to_vec();
    let server = on_node("server-1/start", TaskType::Rke2Start);
    for &state in StepState::ALL {
        let all = [step(&server, state), step(&waits, StepState::Pending)];
        let explained = steps(&all);
        assert_explained(state, state.is_final(), explained[0].as_ref());
        assert_explained(format_args!("pending behind {state}"), false, explained[1].as_ref());
    }
    let explained = steps(&[step(&server, StepState::Running), step(&waits, StepState::Pending)]);
    let (running, pending) = (explained[0].clone().unwrap(), explained[1].clone().unwrap());
    assert_eq!((running.what.as_str(), running.from), ("server-1 to start", WaitingFrom::Node));
    assert_eq!((running.evidence.as_deref(), running.until), (Some("kubelet not ready"), Some(LATER)));
    assert_eq!(pending.what, "server-1/start, a/1, a/2 and 2 more to succeed");
    assert_eq!(pending.from, WaitingFrom::Node, "the node that the first of them waits for");
    assert_eq!(pending.evidence.as_deref(), Some("server-1/start is running: kubelet not ready"));
    let backoff = current_step(&step(&server, StepState::Backoff)).unwrap();
    assert_eq!((backoff.what.as_str(), backoff.until), ("attempt 2 of server-1/start", Some(LATER)));
    let free = on_node("agent-2/start", TaskType::Rke2Start);
    let ready = steps(&[step(&free, StepState::Pending)])[0].clone().unwrap();
    assert_eq!((ready.what.as_str(), ready.from), ("the platform to begin agent-2/start", WaitingFrom::Platform));
}

#[test]
fn call_to_the_cluster_waits_for_what_its_member_does_there() {
    let call = StepAction::ClusterCall { call: "cordon_kube_node".into() };
    let of = |on_success| StepSpec { action: call.clone(), on_success, ..test_steps::step("agent-1/x", "p") };
    let what = |spec: &StepSpec| current_step(&step(spec, StepState::Running)).unwrap().what;
    assert_eq!(what(&of(Some(MemberEvent::Drained))), "agent-1 to be drained");
    assert_eq!(what(&of(Some(MemberEvent::BecameReady))), "agent-1 to become ready in the cluster");
    assert_eq!(what(&of(None)), "the cluster to carry out cordon_kube_node for agent-1");
}

#[test]
fn every_state_of_a_member_is_explained_unless_it_settled() {
    let spec = on_node("agent-1/start", TaskType::Rke2Start);
    for &name in MemberStateName::ALL {
        let state = member_state(name);
        for is_busy in [false, true] {
            let row = member_row(&state, is_busy);
            let settled = matches!(name, MemberStateName::Ready | MemberStateName::Removed);
            assert_explained(name, settled, member(&row).as_ref());
            assert_eq!(row.is_settled(), settled, "{name}");
            let row = MemberRow { current: Some(step(&spec, StepState::Running)), ..row };
            assert_explained(name, name == MemberStateName::Removed, member(&row).as_ref());
        }
    }
    let ready = member_state(MemberStateName::Ready);
    for &health in Health::ALL {
        for reported_by in [None, Some("watcher")] {
            let row = MemberRow { health, reported_by, ..member_row(&ready, false) };
            assert_explained(health, matches!(health, Health::Healthy | Health::None), member(&row).as_ref());
        }
    }
    let drained = member_state(MemberStateName::Drained);
    let waiting = member(&member_row(&drained, false)).unwrap();
    assert_eq!(waiting.next.command.as_deref(), Some("gpuaas workload uncordon-member train agent-1"));
}

#[test]
fn every_state_of_a_node_is_explained_unless_it_is_connected_or_retired() {
    let issued = IssuedEnrollment { issued_at: AT, expires_at: LATER };
    let problem = AgentProblem { detail: "its ledger is damaged", since: AT };
    for &state in NodeState::ALL {
        for &connectivity in Connectivity::ALL {
            for enrollment in [None, Some(issued)] {
                for problem in [None, Some(problem)] {
                    let link = NodeLink { name: "gpu-1", connectivity, since: AT };
                    let row = NodeRow { link, state, problem, enrollment, left_at: None, created_at: AT };
                    let is_usable = connectivity == Connectivity::Connected && problem.is_none();
                    let settled = state == NodeState::Retired || state == NodeState::Active && is_usable;
                    assert_explained(format_args!("{state} {connectivity}"), settled, node(&row).as_ref());
                }
            }
        }
    }
    let link = NodeLink { name: "gpu-1", connectivity: Connectivity::Never, since: AT };
    let registered = NodeRow {
        link,
        state: NodeState::Registered,
        problem: None,
        enrollment: Some(issued),
        left_at: None,
        created_at: AT,
    };
    assert_eq!(node(&registered).unwrap().until, Some(LATER), "the string expires then");
}

#[test]
fn every_state_of_an_allocation_and_of_a_task_is_explained_unless_it_settled() {
    for &connectivity in Connectivity::ALL {
        let link = NodeLink { name: "gpu-1", connectivity, since: AT };
        for &state in AllocationState::ALL {
            let id = AllocationId::from_uuid(id());
            let row = AllocationRow { id, link, state, detail: None, created_at: AT };
            let settled =
                matches!(state, AllocationState::Active | AllocationState::Released | AllocationState::Failed);
            assert_explained(state, settled, allocation(&row).as_ref());
        }
        for &state in TaskState::ALL {
            let row = TaskRow {
                id: TaskId::from_uuid(id()),
                link,
                task_type: TaskType::Preflight,
                state,
                operation: None,
                progress: Some("checking ports"),
                created_at: AT,
                expires_at: LATER,
            };
            assert_explained(state, state.is_final(), task(&row).as_ref());
            let is_connected = connectivity == Connectivity::Connected;
            let what = task(&row).map(|waiting| waiting.what);
            let expected = if is_connected { "gpu-1 to pass the checks of its node" } else { "gpu-1 to connect" };
            assert_eq!(what, (!state.is_final()).then(|| expected.to_owned()));
        }
    }
}

#[test]
fn controller_is_awaited_until_it_reports_about_the_present_generation() {
    let of = |reported| {
        controller(&ControllerRow { account: "watcher", workload: "train", generation: 3, reported, since: AT })
    };
    assert_explained("no report", false, of(None).as_ref());
    assert_explained("an earlier report", false, of(Some(2)).as_ref());
    assert_explained("a report", true, of(Some(3)).as_ref());
}

#[test]
fn oracle_reports_a_failure_without_evidence_and_an_operation_that_nothing_continues() {
    let first = on_node("agent-1/fetch", TaskType::ArtifactFetch);
    let needs = vec![first.key.clone()];
    let second = StepSpec { needs, ..on_node("agent-1/start", TaskType::Rke2Start) };
    let running = operation_row(OperationState::Running, None, None);
    let open = Open { state: OperationState::Running, since: AT, current: None };
    let of = |operation, steps| Rows {
        workload: workload_row(Lifecycle::Deploying, Some(open)),
        members: Vec::new(),
        operation: Some(operation),
        steps,
    };
    let well = of(running, vec![step(&first, StepState::Running), step(&second, StepState::Pending)]);
    assert_eq!(unexplained(&well, LATER), Vec::<String>::new());
    let circle = StepSpec { needs: vec![second.key.clone()], ..first.clone() };
    let stalled = of(running, vec![step(&circle, StepState::Pending), step(&second, StepState::Pending)]);
    let found = unexplained(&stalled, LATER);
    assert!(found.len() == 1 && found[0].ends_with("waits for no step"), "{found:?}");
    let unclear = of(operation_row(OperationState::NeedsAttention, None, None), Vec::new());
    let found = unexplained(&unclear, LATER);
    assert!(found.iter().any(|gap| gap.ends_with("waits without evidence")), "{found:?}");
    let early = unexplained(&well, Timestamp::from_millis(1));
    assert!(early.iter().any(|gap| gap.contains("which is later than")), "{early:?}");
}
