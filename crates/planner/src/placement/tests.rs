//! Reasons against a placement: each by itself, and none that only repeats another.

use super::*;
use gpuaas_model::TaskType;

fn uuid(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

fn manifest() -> Manifest {
    let tasks = vec![(TaskType::Preflight, 1), (TaskType::Rke2Start, 2)];
    Manifest { tasks, ..crate::test_steps::manifest() }
}

fn support(start_schemas: &[u32]) -> Vec<TaskSupport> {
    let known = |task: TaskType, schemas: &[u32]| TaskSupport { task: task.as_str().into(), schemas: schemas.to_vec() };
    vec![known(TaskType::Preflight, &[1]), known(TaskType::Rke2Start, start_schemas)]
}

fn usable() -> Candidate {
    Candidate {
        allocation: AllocationId::from_uuid(uuid(1)),
        project: ProjectId::from_uuid(uuid(2)),
        state: AllocationState::Active,
        node: NodeView { id: NodeId::from_uuid(uuid(3)), name: "gpu-1".parse().unwrap(), address: "10.0.0.1".into() },
        node_state: NodeState::Active,
        connectivity: Connectivity::Connected,
        connectivity_since: Timestamp::from_millis(0),
        support: support(&[1, 2]),
        problem: None,
        blocking: BTreeSet::new(),
        used_by: None,
    }
}

fn codes(change: impl FnOnce(&mut Candidate)) -> Vec<Code> {
    let mut candidate = usable();
    change(&mut candidate);
    let reasons = unusable("server_allocation_id", &candidate, &manifest());
    assert!(reasons.iter().all(|reason| reason.field == "server_allocation_id" && reason.next.is_some()));
    reasons.into_iter().map(|reason| reason.code).collect()
}

#[test]
fn active_connected_unused_node_is_usable() {
    assert_eq!(codes(|_| ()), []);
}

#[test]
fn inactive_allocation_is_reported_once() {
    use {AllocationState as A, Connectivity as C};
    assert_eq!(codes(|of| of.state = A::Provisioning), [Code::AllocationInactive]);
    // The node's state follows from the allocation's.
    let released = |of: &mut Candidate| (of.state, of.node_state) = (A::Released, NodeState::NeedsReimage);
    assert_eq!(codes(released), [Code::AllocationInactive]);
    // So does the lost connection of a node that was given back.
    for over in [A::Releasing, A::Released, A::Failed, A::ReleaseFailed] {
        assert_eq!(codes(|of| (of.state, of.connectivity) = (over, C::Unreachable)), [Code::AllocationInactive]);
    }
    let cut_off = codes(|of| (of.state, of.connectivity) = (A::Provisioning, C::Unreachable));
    assert_eq!(cut_off, [Code::AllocationInactive, Code::AllocationUnreachable]);
}

#[test]
fn inactive_unreachable_or_used_node_is_refused() {
    assert_eq!(codes(|of| of.node_state = NodeState::NeedsReimage), [Code::AllocationInactive]);
    assert_eq!(codes(|of| of.connectivity = Connectivity::Unreachable), [Code::AllocationUnreachable]);
    assert_eq!(codes(|of| of.used_by = Some("train".into())), [Code::AllocationInUse]);
}

#[test]
fn agent_without_a_required_task_version_is_refused() {
    assert_eq!(codes(|of| of.support = support(&[1])), [Code::AgentTooOld]);
    assert_eq!(codes(|of| of.support = Vec::new()), [Code::AgentTooOld]);
    assert_eq!(codes(|of| of.support = support(&[3, 4])), [], "newer versions suffice");
    let mut candidate = usable();
    candidate.support = vec![TaskSupport { task: "rke2.start".into(), schemas: vec![1] }];
    let reasons = unusable("f", &candidate, &manifest());
    assert_eq!(reasons[0].detail, "the agent of gpu-1 does not know host.preflight, rke2.start");
    // The task types of a disconnected agent are unknown.
    let unreachable = |of: &mut Candidate| (of.connectivity, of.support) = (Connectivity::Unreachable, Vec::new());
    assert_eq!(codes(unreachable), [Code::AllocationUnreachable]);
}

#[test]
fn node_whose_agent_takes_no_tasks_is_not_usable() {
    let problem = || Some((Code::AgentLedgerDamaged, "ledger.jsonl is missing".to_owned()));
    assert_eq!(codes(|candidate| candidate.problem = problem()), [Code::AgentLedgerDamaged]);
    let mut candidate = Candidate { problem: problem(), ..usable() };
    let reasons = unusable("server_allocation_id", &candidate, &manifest());
    assert!(reasons[0].detail.contains("ledger.jsonl is missing"), "{reasons:?}");
    candidate.state = AllocationState::Released;
    let reasons = unusable("server_allocation_id", &candidate, &manifest());
    assert!(reasons.iter().all(|reason| reason.code != Code::AgentLedgerDamaged), "no reason about the agent");
}

#[test]
fn node_with_blocking_findings_is_refused_until_it_is_inspected_again() {
    let blocking = BTreeSet::from(["leftover".to_owned(), "port_taken".to_owned()]);
    let mut candidate = Candidate { blocking, ..usable() };
    let reasons = unusable("server_allocation_id", &candidate, &manifest());
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!(reason.code, Code::AllocationBlocked);
    assert_eq!(reason.detail, "gpu-1 has findings that block a deployment: leftover, port_taken");
    let next = reason.next.as_deref().expect("a next action");
    assert!(next.contains("gpuaas node show gpu-1") && next.ends_with("gpuaas node inspect gpu-1"), "{reason:?}");
    candidate.state = AllocationState::Released;
    let reasons = unusable("server_allocation_id", &candidate, &manifest());
    assert!(reasons.iter().all(|reason| reason.code != Code::AllocationBlocked), "no reason about the node");
}
