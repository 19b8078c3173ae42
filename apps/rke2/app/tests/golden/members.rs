//! What operations do with members in unusual states, and what protects a cluster.

use gpuaas_model::{Fault, FaultClass, NextAction};

use super::*;

#[test]
fn repair_brings_up_a_member_that_no_operation_has_reached() {
    let mut of = running(vec![
        member("server", 1, ready()),
        member("agent", 1, MemberState::Pending),
        member("agent", 2, since(|since| MemberState::Joining { since })),
    ]);
    of.members[1].touched = false;
    let steps_of = |name: &str| {
        let parameters = json!({ "scope": "member", "member": name });
        let plan = requested(OperationKind::Repair, parameters, &of).expect("a plan");
        let prefix = format!("{name}/");
        let keys = plan.steps.iter().filter_map(|step| step.key.as_str().strip_prefix(&prefix).map(str::to_owned));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(steps_of("agent-1"), ["preflight", "fetch", "install", "configure", "start", "wait-ready"]);
    assert_eq!(steps_of("agent-2").first().map(String::as_str), Some("stop"), "its node was changed");
    let removed = requested(OperationKind::RemoveMember, json!({ "member": "agent-1" }), &of).expect("a plan");
    assert!(removed.steps.iter().all(|step| step.key.as_str() != "agent-1/drain"), "nothing runs there");
}

#[test]
fn report_of_a_controller_lifts_no_protection() {
    use OperationKind as K;
    let reported = |members: &[usize]| {
        let mut of =
            running(vec![member("server", 1, ready()), member("agent", 1, ready()), member("agent", 2, ready())]);
        members.iter().for_each(|at| of.members[*at].health = Health::Failed);
        of
    };
    let remove = json!({ "member": "agent-1" });
    let plan = requested(K::RemoveMember, remove.clone(), &reported(&[1])).expect("a plan");
    assert!(plan.steps.iter().any(|step| step.key.as_str() == "agent-1/drain"), "disruption budgets hold");
    let mut last = reported(&[1]);
    last.members.pop();
    let refusal = requested(K::RemoveMember, remove, &last).expect_err("the only ready agent");
    assert!(matches!(refusal, PlanRefusal::Refused(reason) if reason.code == Code::LastAgent));
    let resumed = plan_of_steps(K::Deploy, &reported(&[0, 1]));
    assert!(!resumed.contains(&"server-1/install".to_owned()), "a server that serves is not installed again");
}

#[test]
fn resumed_repair_without_its_server_still_delivers_access() {
    let of = running(vec![member("server", 1, ready()), member("agent", 1, MemberState::Pending)]);
    let parameters = json!({ "scope": "whole_runtime" }).as_object().cloned().expect("an object");
    let request = OperationRequest { kind: OperationKind::Repair, parameters };
    let plan = Rke2::default().plan(&request, &of, &[of.members[1].id]).expect("a plan");
    let keys: Vec<&str> = plan.steps.iter().map(|step| step.key.as_str()).collect();
    assert!(keys.contains(&"api_ready") && keys.contains(&"deliver_access"), "{keys:?}");
    assert!(!keys.iter().any(|key| key.starts_with("server-1/")), "{keys:?}");
}

#[test]
fn repair_whose_node_is_lost_is_refused_whatever_a_controller_reports() {
    use OperationKind as K;
    let lost = |at: usize| {
        let mut of =
            running(vec![member("server", 1, ready()), member("agent", 1, ready()), member("agent", 2, ready())]);
        let next = NextAction::text("look");
        let fault = |code: &str| {
            let (code, summary) = (code.to_owned(), "it is so".to_owned());
            Some(Fault { code, class: FaultClass::Manual, summary, evidence: None, next: next.clone() })
        };
        let member = &mut of.members[at];
        (member.health, member.fault) = (Health::Failed, fault("controller_reported"));
        (member.own_health, member.own_fault) = (Health::Degraded, fault("node_unreachable"));
        member.machine.unreachable_since = Some(Timestamp::from_millis(1));
        of
    };
    let whole = || json!({ "scope": "whole_runtime" });
    let of_member = |name: &str| json!({ "scope": "member", "member": name });
    for (parameters, of) in [(of_member("agent-1"), lost(1)), (of_member("server-1"), lost(0)), (whole(), lost(0))] {
        match requested(K::Repair, parameters.clone(), &of) {
            Err(PlanRefusal::Refused(reason)) => assert_eq!(reason.code, Code::AllocationUnreachable, "{parameters}"),
            other => panic!("{parameters}: {other:?}"),
        }
    }
    assert!(requested(K::Repair, whole(), &lost(1)).is_ok(), "the others are repaired");
    // What a controller reports about a server keeps no agent from its repair.
    let mut of = running(vec![member("server", 1, ready()), member("agent", 1, MemberState::Pending)]);
    of.members[0].health = Health::Failed;
    assert!(requested(K::Repair, of_member("agent-1"), &of).is_ok());
}

#[test]
fn kube_node_that_is_not_ready_lifts_no_budget_and_a_dead_service_does() {
    let unwell = |code: &str| {
        let mut of =
            running(vec![member("server", 1, ready()), member("agent", 1, ready()), member("agent", 2, ready())]);
        let (code, summary, next) = (code.to_owned(), "it is so".to_owned(), NextAction::text("look"));
        let fault = Fault { code, class: FaultClass::Repairable, summary, evidence: None, next };
        let member = &mut of.members[1];
        (member.health, member.own_health) = (Health::Degraded, Health::Degraded);
        (member.fault, member.own_fault) = (Some(fault.clone()), Some(fault));
        of
    };
    for (code, is_drained) in [("kube_node_not_ready", true), ("rke2_service_down", false)] {
        let plan = requested(OperationKind::RemoveMember, json!({ "member": "agent-1" }), &unwell(code));
        let plan = plan.expect("a plan");
        let drains = plan.steps.iter().any(|step| step.key.as_str() == "agent-1/drain");
        assert_eq!(drains, is_drained, "{code}");
    }
}

#[test]
fn readiness_counts_from_the_last_start_that_the_node_has_dated() {
    let mut of = running(vec![member("server", 1, ready()), member("agent", 1, ready())]);
    let plan = plan(OperationKind::Start, &of);
    let step = |key: &str| plan.steps.iter().find(|step| step.key.as_str() == key).expect("the step");
    let app = Rke2::default();
    let request = OperationRequest::of(OperationKind::Start);
    let unit = json!({ "unit": "rke2-server.service", "active": "active", "sub": "running", "result": "success",
                       "n_restarts": 0, "exec_main_status": 0, "since": 1_790_000_009_000_i64 });
    let dated = json!({ "kube_node": "gpu-01", "started_at": 1_790_000_000_007_i64 });
    let undated = json!({ "kube_node": "gpu-01" });
    assert_eq!(app.render(step("server-1/wait-ready"), &request, &of).expect("rendered"), undated);
    // The last result is that of an older agent.
    for (started_at, expected) in [(Some(1_790_000_000_007_i64), &dated), (None, &undated)] {
        let mut result = json!({ "unit": unit, "ready_after_ms": 9_000 });
        if let Some(at) = started_at {
            result["started_at"] = json!(at);
        }
        for output in app.step_outputs(step("server-1/start"), &result, &of).expect("a success") {
            let StepOutput::Fact(name, value) = output else { panic!("{output:?}") };
            of.facts.insert(name, value);
        }
        assert_eq!(app.render(step("server-1/wait-ready"), &request, &of).expect("rendered"), *expected);
    }
}

fn plan_of_steps(kind: OperationKind, of: &WorkloadView) -> Vec<String> {
    plan(kind, of).steps.iter().map(|step| step.key.to_string()).collect()
}

#[test]
fn removal_deletes_the_kube_node_that_it_has_cordoned_and_no_later_one() {
    let mut of = running(vec![member("server", 1, ready()), member("agent", 1, ready()), member("agent", 2, ready())]);
    let remove = json!({ "member": "agent-1" });
    let plan = requested(OperationKind::RemoveMember, remove.clone(), &of).expect("a plan");
    let step = |key: &str| plan.steps.iter().find(|step| step.key.as_str() == key).expect("the step");
    let app = Rke2::default();
    let outputs = |result: Value| app.step_outputs(step("agent-1/cordon"), &result, &of).expect("a success");
    assert_eq!(outputs(json!({ "uid": "x".repeat(65) })).len(), 1, "no uid of Kubernetes");
    for output in outputs(json!({ "kube_node": "gpu-101", "changed": true, "uid": "0198c0de" })) {
        let StepOutput::Fact(name, value) = output else { panic!("{output:?}") };
        of.facts.insert(name, value);
    }
    let parameters = remove.as_object().cloned().expect("an object");
    let request = OperationRequest { kind: OperationKind::RemoveMember, parameters };
    let rendered = app.render(step("agent-1/delete-kube-node"), &request, &of).expect("rendered");
    assert_eq!(rendered, json!({ "kube_node": "gpu-101", "uid": "0198c0de" }));
}
