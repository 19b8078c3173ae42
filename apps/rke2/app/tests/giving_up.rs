//! Plans for members on nodes that are unreachable, or that a person gives up.

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{Code, FaultClass, Lifecycle, MemberState, OperationKind, Timestamp};
use gpuaas_planner::{
    App, MemberView, OperationRequest, Plan, PlanRefusal, ReleaseView, StepSpec, WorkloadView, check, test_views,
};
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};

const MEMBERS: [&str; 3] = ["server-1", "agent-1", "agent-2"];

/// A running cluster; the machines of these members are unreachable.
fn losing(lost: &[&str]) -> WorkloadView {
    let ready = MemberState::Ready { since: Timestamp::from_millis(0) };
    let member = |(name, number)| test_views::member(name, number, ready.clone());
    let mut members: Vec<MemberView> = MEMBERS.into_iter().zip(1..).map(member).collect();
    for member in members.iter_mut().filter(|member| lost.contains(&member.name.as_str())) {
        member.machine.unreachable_since = Some(Timestamp::from_millis(1));
    }
    WorkloadView {
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: Vec::new() },
        ..test_views::workload(members)
    }
}

fn planned(request: &OperationRequest, of: &WorkloadView) -> Result<Plan, PlanRefusal> {
    let app = Rke2::default();
    request.check(app.manifest())?;
    let targets = app.subjects(request, of)?.existing;
    let plan = app.plan(request, of, &targets)?;
    assert_eq!(check(&plan, &app.manifest().phases, &of.members), []);
    Ok(plan)
}

fn keys(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.key.as_str()).collect()
}

fn step<'p>(plan: &'p Plan, key: &str) -> &'p StepSpec {
    plan.steps.iter().find(|step| step.key.as_str() == key).unwrap_or_else(|| panic!("{key} is missing"))
}

fn removal(parameters: Value) -> OperationRequest {
    let parameters = parameters.as_object().cloned().expect("an object");
    OperationRequest { kind: OperationKind::RemoveMember, parameters }
}

#[test]
fn decommission_waits_for_an_unreachable_node_and_no_other_member_does() {
    let of = losing(&["agent-1"]);
    let plan = planned(&OperationRequest::of(OperationKind::Decommission), &of).expect("a plan");
    let expected = [
        "agent-1/await-node",
        "agent-1/stop",
        "agent-1/uninstall",
        "agent-1/residue",
        "agent-2/stop",
        "agent-2/uninstall",
        "agent-2/residue",
        "server-1/stop",
        "server-1/uninstall",
        "server-1/residue",
        "removed",
    ];
    assert_eq!(keys(&plan), expected);
    let shown = |keys: &[gpuaas_planner::StepKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let needs = |key: &str| shown(&step(&plan, key).needs);
    let after = |key: &str| shown(&step(&plan, key).after);
    assert_eq!(needs("agent-1/stop"), ["agent-1/await-node"]);
    assert_eq!(needs("agent-1/residue"), ["agent-1/await-node"]);
    assert_eq!(after("agent-1/stop"), ["agent-1/await-node"]);
    assert_eq!(after("server-1/stop"), ["agent-2/residue"]);
    assert_eq!(needs("removed"), ["agent-2/residue", "server-1/residue", "agent-1/residue"]);
    let whole = planned(&OperationRequest::of(OperationKind::Decommission), &losing(&[])).expect("a plan");
    assert!(whole.steps.iter().all(|step| step.key.what() != "await-node"));
}

#[test]
fn given_up_members_end_without_their_nodes() {
    let of = losing(&["server-1", "agent-1"]);
    let names = ["server-1", "agent-1"].map(str::to_owned);
    let plan = planned(&OperationRequest::giving_up(&names, "burnt down"), &of).expect("a plan");
    let of_agent = ["agent-2/stop", "agent-2/uninstall", "agent-2/residue"];
    assert_eq!(keys(&plan), [&["agent-1/give-up"][..], &of_agent, &["server-1/give-up", "removed"]].concat());
    let all = ["server-1", "agent-1", "agent-2"].map(str::to_owned);
    let plan = planned(&OperationRequest::giving_up(&all, "burnt down"), &of).expect("a plan without any node");
    assert!(plan.steps.iter().all(|step| matches!(step.action, gpuaas_planner::StepAction::Record { .. })));
}

#[test]
fn given_up_agent_is_deleted_from_the_cluster_before_it_ends() {
    let of = losing(&["agent-1"]);
    let request = removal(json!({ "member": "agent-1", "give_up": true, "reason": "burnt down" }));
    let plan = planned(&request, &of).expect("a plan");
    assert_eq!(keys(&plan), ["agent-1/delete-kube-node", "agent-1/give-up", "removed"]);
    // A removal that ended before its member was marked as the operation's success.
    let resumed = Rke2::default().plan(&request, &of, &[]).expect("a plan for a removed member");
    assert_eq!(keys(&resumed), ["removed"]);
}

#[test]
fn only_what_cannot_be_proven_is_given_up_and_with_a_reason() {
    let of = losing(&["server-1", "agent-1"]);
    for (parameters, field, code) in [
        (json!({ "member": "agent-1", "give_up": true }), "parameters.reason", Code::FieldInvalid),
        (json!({ "member": "agent-1", "reason": "burnt" }), "parameters.reason", Code::FieldInvalid),
        (json!({ "member": "agent-2", "give_up": true, "reason": "b" }), "parameters.give_up", Code::StateConflict),
        (json!({ "member": "server-1", "give_up": true, "reason": "b" }), "parameters.member", Code::LastServer),
    ] {
        match planned(&removal(parameters.clone()), &of) {
            Err(PlanRefusal::Refused(reason)) => {
                assert_eq!((reason.field.as_str(), reason.code), (field, code), "{parameters}");
                assert!(reason.next.is_some(), "{parameters}");
            }
            other => panic!("{parameters}: {other:?}"),
        }
    }
}

#[test]
fn node_that_did_not_return_can_be_given_up() {
    let of = losing(&["agent-1"]);
    let plan = planned(&OperationRequest::of(OperationKind::Decommission), &of).expect("a plan");
    let failure = TaskFailure::new(Code::NodeUnreachable, "the node did not connect by the deadline");
    let of = WorkloadView { lifecycle: Lifecycle::Decommissioning, ..of };
    let fault = Rke2::default().diagnose(step(&plan, "agent-1/await-node"), &failure, &of);
    assert_eq!((fault.code.as_str(), fault.class), ("node_unreachable", FaultClass::Manual));
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload decommission train --give-up gpu-2 --reason TEXT"));
}

#[test]
fn removal_of_an_agent_waits_for_its_node_and_drains_nothing() {
    let of = losing(&["agent-1"]);
    let plan = planned(&removal(json!({ "member": "agent-1" })), &of).expect("a plan");
    let expected =
        ["await-node", "stop", "delete-kube-node", "uninstall", "residue"].map(|what| format!("agent-1/{what}"));
    assert_eq!(keys(&plan), [&expected.each_ref().map(String::as_str)[..], &["removed"]].concat());
    let failure = TaskFailure::new(Code::NodeUnreachable, "the node did not connect by the deadline");
    let fault = Rke2::default().diagnose(step(&plan, "agent-1/await-node"), &failure, &of);
    let command = "gpuaas workload remove-member train agent-1 --give-up --reason TEXT";
    assert_eq!(fault.next.command.as_deref(), Some(command), "the others stay");
}

#[test]
fn reconciliation_does_not_wait_for_an_unreachable_node() {
    let plan = planned(&OperationRequest::of(OperationKind::Reconcile), &losing(&["agent-1"])).expect("a plan");
    let of = |name: &str| {
        let prefix = format!("{name}/");
        keys(&plan).into_iter().filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(of("agent-1").len(), 1, "its labels are in the cluster: {:?}", of("agent-1"));
    assert_eq!(of("agent-2").len(), 3, "{:?}", of("agent-2"));
}
