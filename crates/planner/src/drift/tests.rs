//! When the platform reconciles, and when it stops reconciling.

use gpuaas_model::{Health, Progress};
use uuid::Uuid;

use super::*;

const NODE: DriftSource = DriftSource::Node(MemberId::from_uuid(Uuid::from_u128(1)));

fn name() -> Name {
    "train".parse().expect("a name")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000)
}

fn difference(field: &str, action: NextAction) -> Difference {
    Difference {
        member: Some("agent-1".to_owned()),
        field: field.to_owned(),
        desired: "as written by the platform".to_owned(),
        observed: "it was changed".to_owned(),
        since: None,
        action,
    }
}

fn changed() -> Vec<Difference> {
    vec![difference("config", NextAction::reconcile("it writes the file again", name()))]
}

#[test]
fn first_reconciliation_follows_soon_and_further_ones_wait_longer() {
    let drift = Drift::default().with(NODE, changed(), at(0));
    assert_eq!(drift.next(&name(), at(0)), NextReconciliation::Due(at(2)));
    let drift = drift.attempted(at(2)).with(NODE, changed(), at(10));
    assert_eq!(drift.next(&name(), at(10)), NextReconciliation::Due(at(32)), "30 s after the first");
    let drift = drift.attempted(at(32)).with(NODE, Vec::new(), at(33));
    assert_eq!(drift.next(&name(), at(33)), NextReconciliation::None, "nothing deviates");
    let drift = drift.with(NODE, changed(), at(100));
    assert_eq!(drift.next(&name(), at(100)), NextReconciliation::Due(at(220)), "120 s after it came back");
}

#[test]
fn platform_gives_up_after_the_last_attempt_until_an_hour_has_passed() {
    let mut drift = Drift::default().with(NODE, changed(), at(0));
    for start in [2, 40, 200] {
        assert_eq!(drift.fault(&name(), at(start)), None, "attempts are left");
        drift = drift.attempted(at(start));
    }
    assert_eq!(drift.next(&name(), at(201)), NextReconciliation::Exhausted);
    let fault = drift.fault(&name(), at(201)).expect("it persists");
    assert_eq!((fault.code.as_str(), fault.class), ("drift_persists", FaultClass::Manual));
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload reconcile train"));
    assert!(fault.next.text.contains("gpuaas workload diff train"), "{}", fault.next.text);
    assert_eq!(fault.evidence.and_then(|evidence| evidence.at), Some(at(0)), "the time since which it deviates");
    assert!(matches!(drift.next(&name(), at(3_700)), NextReconciliation::Due(_)), "the first two count no more");
    assert_eq!(drift.attempted(at(3_700)).attempts, [at(200), at(3_700)], "what counts no more is forgotten");
}

#[test]
fn attempt_that_yields_to_a_person_does_not_count() {
    let drift = Drift::default().with(NODE, changed(), at(0)).attempted(at(2)).attempted(at(40)).attempted(at(200));
    let drift = drift.yielded(at(200));
    assert_eq!(drift.attempts, [at(2), at(40)]);
    assert_eq!(drift.next(&name(), at(300)), NextReconciliation::Due(at(160)));
}

#[test]
fn what_no_reconciliation_corrects_is_a_fault_with_its_own_action() {
    let repair = NextAction::repair_member("it installs the program again", name(), "agent-1");
    let by_hand = NextAction::compare_again("after the operator has removed it", name());
    for (action, class) in [(repair, FaultClass::Repairable), (by_hand, FaultClass::Manual)] {
        let drift = Drift::default().with(NODE, vec![difference("program", action.clone())], at(0));
        assert_eq!(drift.next(&name(), at(0)), NextReconciliation::None);
        let fault = drift.fault(&name(), at(0)).expect("only a person ends it");
        assert_eq!((fault.class, fault.next), (class, action));
    }
}

#[test]
fn each_source_replaces_only_what_it_showed_and_keeps_the_time() {
    let drift = Drift::default().with(NODE, changed(), at(0)).with(DriftSource::Cluster, changed(), at(5));
    let drift = drift.with(NODE, changed(), at(9));
    let since: Vec<_> = drift.seen.iter().map(|seen| (seen.source, seen.difference.since)).collect();
    assert_eq!(since, [(NODE, Some(at(0))), (DriftSource::Cluster, Some(at(5)))]);
    let drift = drift.with(NODE, Vec::new(), at(10));
    assert_eq!(drift.seen.iter().map(|seen| seen.source).collect::<Vec<_>>(), [DriftSource::Cluster]);
    let gone = Drift::default().with(NODE, changed(), at(0)).of_members(&[]);
    assert!(gone.is_empty(), "the member was removed");
}

#[test]
fn workload_is_reconciling_while_a_reconciliation_is_due_and_nothing_worse() {
    let status = |lifecycle, recovery| Status {
        lifecycle,
        phase: "ready".to_owned(),
        health: Health::Healthy,
        recovery,
        progress: Progress::default(),
    };
    let due = Drift { due_at: Some(at(0)), ..Drift::default() };
    let shown = |drift: &Drift, lifecycle, recovery| drift.shown(status(lifecycle, recovery)).recovery;
    assert_eq!(shown(&due, Lifecycle::Running, Recovery::None), Recovery::Reconciling);
    assert_eq!(shown(&Drift::default(), Lifecycle::Running, Recovery::None), Recovery::None);
    assert_eq!(shown(&due, Lifecycle::Stopped, Recovery::None), Recovery::None);
    assert_eq!(shown(&due, Lifecycle::Running, Recovery::RepairAvailable), Recovery::RepairAvailable);
}
