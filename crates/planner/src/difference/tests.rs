use gpuaas_model::{Fault, FaultClass, OperationKind};
use uuid::Uuid;

use super::*;
use crate::{lifecycle, test_views};

const SINCE: Timestamp = Timestamp::from_millis(1);

fn fault(code: &str, next: NextAction) -> Fault {
    Fault { code: code.to_owned(), class: FaultClass::Manual, summary: "it broke".to_owned(), evidence: None, next }
}

fn states() -> Vec<MemberState> {
    let since = SINCE;
    vec![
        MemberState::Pending,
        MemberState::Preparing { since },
        MemberState::Bootstrapping { since },
        MemberState::Joining { since },
        MemberState::Ready { since },
        MemberState::Stopped { since },
        MemberState::Draining { since },
        MemberState::Drained { since },
        MemberState::Removing { since },
        MemberState::Removed,
        MemberState::Failed { since, fault: fault("it_broke", NextAction::text("look")) },
    ]
}

fn member(state: MemberState) -> MemberView {
    test_views::member("agent-1", 2, state)
}

fn workload(lifecycle: Lifecycle, member: MemberView) -> WorkloadView {
    WorkloadView { lifecycle, ..test_views::workload(vec![member]) }
}

fn of(lifecycle: Lifecycle, member: MemberView) -> Vec<Difference> {
    of_members(&workload(lifecycle, member), &[], None).0
}

/// Returns the operation that a command starts; `None` for one that continues or only reads.
fn started(command: &str) -> Option<OperationKind> {
    let words: Vec<&str> = command.split(' ').collect();
    match words[1..3] {
        ["workload", "start"] => Some(OperationKind::Start),
        ["workload", "repair"] => Some(OperationKind::Repair),
        ["workload", "decommission"] => Some(OperationKind::Decommission),
        ["workload", "uncordon-member"] => Some(OperationKind::UncordonMember),
        ["workload", "resume"] | ["operation", "watch"] | ["node", "show"] => None,
        _ => panic!("{command}"),
    }
}

#[test]
fn every_state_that_is_not_desired_differs_and_its_action_is_allowed() {
    for &lifecycle in Lifecycle::ALL {
        for state in states() {
            let found = of(lifecycle, member(state.clone()));
            let is_desired = match (desired(lifecycle), &state) {
                (_, MemberState::Removed) => true,
                (Desired::InService, MemberState::Ready { .. } | MemberState::Drained { .. }) => true,
                (Desired::Stopped, MemberState::Stopped { .. }) => true,
                (Desired::InService | Desired::Stopped | Desired::Removed, _) => false,
            };
            assert_eq!(found.is_empty(), is_desired, "{lifecycle} {state:?}");
            for difference in found {
                let command = difference.action.command.expect("a command");
                let allowed = started(&command).is_none_or(|kind| lifecycle::allows(kind, lifecycle));
                assert!(allowed, "{lifecycle} {state:?}: {command}");
            }
        }
    }
}

#[test]
fn difference_names_since_when_and_during_an_operation_what_to_wait_for() {
    let failed = member(MemberState::Failed { since: SINCE, fault: fault("it_broke", NextAction::text("look")) });
    let found = of(Lifecycle::Running, failed.clone());
    let [difference] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*difference.field, &*difference.desired, &*difference.observed), ("state", "ready", "failed"));
    assert_eq!(difference.since, Some(SINCE));
    assert_eq!(
        difference.action.command.as_deref(),
        Some("gpuaas workload repair train --scope member --member agent-1")
    );
    let open = OperationId::from_uuid(Uuid::from_u128(9));
    let (found, _) = of_members(&workload(Lifecycle::Running, failed), &[], Some(open));
    assert_eq!(found[0].action, NextAction::watch(open));
}

#[test]
fn health_differs_with_its_fault_and_action() {
    let fault = fault("service_down", NextAction::start("train"));
    let unwell = MemberView {
        health: Health::Degraded,
        fault: Some(fault.clone()),
        ..member(MemberState::Ready { since: SINCE })
    };
    let found = of(Lifecycle::Running, unwell.clone());
    let [difference] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*difference.field, &*difference.observed), ("health", "degraded: it broke (service_down)"));
    assert_eq!(difference.action, fault.next);
    let found = of(Lifecycle::Running, MemberView { fault: None, ..unwell });
    assert_eq!(found[0].observed, "degraded");
    assert_eq!(
        found[0].action,
        NextAction::read_log("train", "agent-1"),
        "its service starts: nothing is to be repaired"
    );
}

#[test]
fn node_that_is_not_connected_differs_and_leaves_its_services_unknown() {
    let ready = MemberView {
        health: Health::Degraded,
        fault: Some(fault(NODE_UNREACHABLE, NextAction::text("look"))),
        ..member(MemberState::Ready { since: SINCE })
    };
    let of = workload(Lifecycle::Running, ready);
    let sight = |connectivity| NodeSight { member: of.members[0].id, connectivity, since: SINCE };
    for connectivity in [Connectivity::Never, Connectivity::Stale, Connectivity::Unreachable] {
        let (found, unknown) = of_members(&of, &[sight(connectivity)], None);
        assert_eq!(found.iter().map(|found| &*found.field).collect::<Vec<_>>(), ["node"]);
        assert_eq!((found[0].observed.as_str(), unknown.len()), (connectivity.as_str(), 1));
    }
    assert_eq!(of_members(&of, &[sight(Connectivity::Connected)], None), (Vec::new(), Vec::new()));
}
