use gpuaas_model::{MemberId, MemberState, OperationKind, Timestamp};
use gpuaas_planner::{App, PlanOutline, ReleaseView, test_views};
use serde_json::{Value, json};

use super::*;
use crate::{Rke2, names};

fn member(component: &str, number: u128, state: &MemberState) -> MemberView {
    test_views::member(&format!("{component}-1"), number, state.clone())
}

fn workload(state: &MemberState) -> WorkloadView {
    WorkloadView {
        release: ReleaseView { version: "v1.36.3+rke2r1".to_owned(), artifacts: Vec::new() },
        ..test_views::workload(vec![member(names::SERVER, 1, state), member(names::AGENT, 2, state)])
    }
}

fn outline(kind: OperationKind, parameters: Value, state: &MemberState) -> PlanOutline {
    let (app, of) = (Rke2::default(), workload(state));
    let request = OperationRequest { kind, parameters: parameters.as_object().cloned().expect("an object") };
    let targets: Vec<MemberId> = of.members.iter().map(|member| member.id).collect();
    let plan = app.plan(&request, &of, &targets).expect("a plan");
    PlanOutline::of(&app, &plan, &request, &of, &targets)
}

fn ready() -> MemberState {
    MemberState::Ready { since: Timestamp::from_millis(0) }
}

#[test]
fn plans_say_what_they_interrupt() {
    let of = |kind, parameters| outline(kind, parameters, &ready()).interrupts();
    use OperationKind as K;
    assert_eq!(
        of(K::Stop, json!({})),
        ["the pods on gpu-2 end", "the Kubernetes API does not answer, and the pods on gpu-1 end"]
    );
    assert_eq!(
        of(K::DrainMember, json!({ "member": "agent-1", "force": true })),
        [
            "gpu-2 takes no new pods",
            "the pods on gpu-2 are evicted; their controllers start them elsewhere; pods without a controller end for good",
        ]
    );
    assert_eq!(of(K::RemoveMember, json!({ "member": "agent-1" })).len(), 5, "cordon, drain, stop, delete, uninstall");
    assert_eq!(of(K::Repair, json!({ "scope": "whole_runtime" })).len(), 2);
    assert_eq!(of(K::Decommission, json!({})).len(), 4);
    for quiet in [K::Reconcile, K::Start] {
        assert_eq!(of(quiet, json!({})), [""; 0], "{quiet}");
    }
    assert_eq!(outline(K::Deploy, json!({}), &MemberState::Pending).interrupts(), [""; 0]);
}

#[test]
fn every_step_says_in_words_what_it_does() {
    use OperationKind as K;
    let of_member = || json!({ "member": "agent-1" });
    let mut steps = outline(K::Deploy, json!({}), &MemberState::Pending).steps;
    for (kind, parameters) in [
        (K::DrainMember, of_member()),
        (K::UncordonMember, of_member()),
        (K::RemoveMember, of_member()),
        (K::Stop, json!({})),
        (K::Start, json!({})),
        (K::Reconcile, json!({})),
        (K::Repair, json!({ "scope": "whole_runtime" })),
        (K::Decommission, json!({})),
    ] {
        steps.extend(outline(kind, parameters, &ready()).steps);
    }
    for step in steps {
        let raw = step.does.contains("rke2.") || step.does.contains('_') || step.does.starts_with("run ");
        assert!(!step.does.is_empty() && !raw, "{}: {}", step.key, step.does);
        assert_eq!(step.member.is_some(), step.node_name.is_some(), "{}", step.key);
    }
}
