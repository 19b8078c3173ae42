use std::collections::BTreeMap;

use gpuaas_model::{
    AllocationId, Health, Lifecycle, MemberId, MemberPlace, MemberState, NodeId, OperationKind, ProjectId, Timestamp,
    WorkloadId,
};
use gpuaas_planner::{App, MachineView, PlanOutline, ReleaseView};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::{Rke2, names};

fn member(component: &str, number: u128, state: &MemberState) -> MemberView {
    MemberView {
        id: MemberId::from_uuid(Uuid::from_u128(number)),
        name: format!("{component}-1"),
        component_key: component.to_owned(),
        ordinal: 1,
        place: MemberPlace::Allocation {
            allocation: AllocationId::from_uuid(Uuid::from_u128(10 + number)),
            node: NodeId::from_uuid(Uuid::from_u128(20 + number)),
        },
        machine: MachineView {
            name: format!("gpu-{number}").parse().expect("a name"),
            address: String::new(),
            clock_skew_seconds: None,
            unreachable_since: None,
        },
        state: state.clone(),
        health: Health::Healthy,
        fault: None,
        own_health: Health::Healthy,
        own_fault: None,
        touched: true,
    }
}

fn workload(state: &MemberState) -> WorkloadView {
    WorkloadView {
        id: WorkloadId::from_uuid(Uuid::from_u128(4)),
        project: ProjectId::from_uuid(Uuid::from_u128(5)),
        name: "train".parse().expect("a name"),
        lifecycle: Lifecycle::Running,
        config: Value::Null,
        release: ReleaseView { version: "v1.36.3+rke2r1".to_owned(), artifacts: Vec::new() },
        members: vec![member(names::SERVER, 1, state), member(names::AGENT, 2, state)],
        facts: BTreeMap::new(),
        secrets: BTreeMap::new(),
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
