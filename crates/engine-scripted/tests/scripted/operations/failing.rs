//! Operations with failures.

use gpuaas_engine::{
    Precondition,
    commands::{ping, workload},
};
use gpuaas_model::{
    AllocationState, Code, EventKind, Health, Lifecycle, MemberEvent, MemberStateName, OperationId, OperationKind,
    OperationState, Recovery, StepState, TaskState,
};
use gpuaas_planner::{FailureScope, OperationRequest, RecordKind, Retry, StepAction, StepKey, StepSpec};
use gpuaas_store::{AuditFilter, MemberRecord, OperationRecord, TaskFilter};
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    engines::admin,
    kit::{AGAIN, BROKEN, call, fault, milestone, needs, task, times},
    nodes::{Reaction, done, failed, hold},
    site::Site,
};

fn code(ended: &crate::site::Ended) -> Option<&str> {
    ended.operation.fault.as_ref().map(|fault| fault.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn retryable_step_is_tried_as_often_as_the_plan_allows() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks(vec![failed(Code::Unavailable, AGAIN); 9]);
    let ended = site.deploy_and_wait(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.steps["install"].attempts, site.engines.nodes.sent()), (3, 3));
    assert_eq!((ended.operation.state, code(&ended)), (OperationState::NeedsAttention, Some("unavailable")));
    assert_eq!(ended.steps["install"].fault, ended.operation.fault);
    let Some(TaskOutcome::Failed { failure }) = &ended.tasks["install"].outcome else { panic!("it failed") };
    assert_eq!((failure.message.as_str(), ended.tasks["install"].attempt), (AGAIN, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn successful_attempt_clears_earlier_faults() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks([failed(Code::Unavailable, AGAIN), failed(Code::Unavailable, AGAIN)]);
    let ended = site.deploy_and_wait(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Succeeded, 3));
    assert_eq!((&ended.operation.fault, &ended.steps["install"].fault), (&None, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn step_with_a_final_fault_is_not_retried() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks([failed(Code::ArtifactDigestMismatch, "another file")]);
    let ended = site.deploy_and_wait(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.steps["install"].attempts, code(&ended)), (1, Some("artifact_digest_mismatch")));
}

#[tokio::test(flavor = "multi_thread")]
async fn member_failure_affects_only_the_member_until_a_resume() {
    let site = Site::of(2).await;
    let planned = |of: &gpuaas_planner::WorkloadView| {
        let join = StepSpec {
            on_first_start: Some(MemberEvent::Join),
            on_success: Some(MemberEvent::BecameReady),
            ..needs(task("join", of, 1), &["prepare"])
        };
        let prepare = StepSpec { on_first_start: Some(MemberEvent::Prepare), ..task("prepare", of, 1) };
        vec![prepare, join, milestone("other")]
    };
    site.engines.nodes.end_tasks([done(json!({})), failed(Code::ClusterNotReady, "no readiness")]);
    let ended = site.deploy_and_wait(planned).await;
    let [well, unwell] = &ended.members[..] else { panic!("two members") };
    assert_eq!((well.state.name(), well.health), (MemberStateName::Pending, Health::Progressing));
    assert_eq!((unwell.state.name(), unwell.health), (MemberStateName::Failed, Health::Failed));
    assert_eq!(ended.workload.fault, None, "only the member failed");
    assert_eq!(ended.steps["other"].state, StepState::Succeeded);
    assert_eq!((ended.operation.state, code(&ended)), (OperationState::NeedsAttention, Some("cluster_not_ready")));
    assert_eq!(ended.workload.observed_generation, 0, "the requested generation is not reached");
    // A fault from the unit's reports in the meantime; the successful resume clears it.
    let mut tx = site.engines.store().begin().await.unwrap();
    let signalled = MemberRecord { fault: Some(fault(Code::ClusterNotReady, "it restarts")), ..unwell.clone() };
    tx.update_member(&signalled, unwell.state.name()).await.unwrap();
    tx.commit().await.unwrap();
    let again = site.resume_and_wait(ended.workload.id).await;
    assert_eq!((again.operation.state, again.operation.resumes), (OperationState::Succeeded, Some(ended.operation.id)));
    assert_eq!((again.members[1].state.name(), again.members[1].health), (MemberStateName::Ready, Health::Healthy));
    assert_eq!((again.members[1].fault.as_ref(), again.workload.observed_generation), (None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_operation_scope_is_cleared_by_a_resume() {
    let site = Site::of(1).await;
    let planned = |of: &gpuaas_planner::WorkloadView| {
        let server = StepSpec { scope: FailureScope::Operation, ..task("server", of, 0) };
        vec![server, needs(milestone("ready"), &["server"])]
    };
    site.engines.nodes.end_tasks([failed(Code::ClusterNotReady, "no readiness")]);
    let ended = site.deploy_and_wait(planned).await;
    assert_eq!(ended.workload.fault.as_ref().map(|fault| fault.code.as_str()), Some("cluster_not_ready"));
    let skipped = &ended.steps["ready"];
    assert_eq!((skipped.state, skipped.attempts, skipped.ended_at.is_some()), (StepState::Skipped, 0, true));
    let again = site.resume_and_wait(ended.workload.id).await;
    assert_eq!((again.operation.state, again.workload.fault), (OperationState::Succeeded, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_a_repair_of_a_failed_deployment_leaves_out_is_failed_and_explained() {
    let site = Site::of(2).await;
    let server = |of: &gpuaas_planner::WorkloadView| {
        let on_success = Some(MemberEvent::BecameReady);
        vec![StepSpec { on_success, scope: FailureScope::Operation, ..task("server", of, 0) }]
    };
    site.engines.nodes.end_tasks([failed(Code::ClusterNotReady, "no readiness"), done(json!({}))]);
    let deployed = site.deploy_and_wait(server).await;
    assert_eq!(deployed.workload.lifecycle, Lifecycle::Failed);
    assert_eq!(deployed.members[1].state.name(), MemberStateName::Pending, "a resumed deployment takes it on");
    let request = OperationRequest::of(OperationKind::Repair);
    let (engine, id) = (&site.engines.engine, deployed.workload.id);
    let repair = workload::start_operation(engine, &admin(), id, &Precondition::Any, request).await.unwrap();
    let repaired = site.end_of(repair.operation.id).await;
    assert_eq!(repaired.operation.state, OperationState::Succeeded);
    let of = &repaired.workload;
    assert_eq!(
        (of.lifecycle, of.health, of.recovery),
        (Lifecycle::Running, Health::Degraded, Recovery::RepairAvailable)
    );
    let left_out = repaired.members[1].state.fault().expect("it is failed");
    assert_eq!(left_out.code, "member_left_out");
    assert_eq!(left_out.next.command.as_deref(), Some("gpuaas workload repair train --scope member --member unit-2"));
}

/// Prepares the members and lets them join, one after the other.
fn bring_up(of: &gpuaas_planner::WorkloadView) -> Vec<StepSpec> {
    let mut steps: Vec<StepSpec> = Vec::new();
    for (at, member) in of.members.iter().enumerate() {
        let (prepare, join) = (format!("{}/prepare", member.name), format!("{}/join", member.name));
        let before: Vec<StepKey> = steps.last().map(|step| step.key.clone()).into_iter().collect();
        let prepares = StepSpec { on_first_start: Some(MemberEvent::Prepare), needs: before, ..task(&prepare, of, at) };
        let (on_first_start, on_success) = (Some(MemberEvent::Join), Some(MemberEvent::BecameReady));
        steps.push(prepares);
        steps.push(StepSpec { on_first_start, on_success, ..needs(task(&join, of, at), &[&prepare]) });
    }
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_repair_spares_the_members_that_it_has_repaired() {
    let site = Site::of(2).await;
    let no_readiness = failed(Code::ClusterNotReady, "no readiness");
    site.engines.nodes.end_tasks(vec![done(json!({})); 7].into_iter().chain([no_readiness]));
    let deployed = site.deploy_and_wait(bring_up).await;
    assert_eq!(deployed.operation.state, OperationState::Succeeded);
    let request = OperationRequest::of(OperationKind::Repair);
    let (engine, id) = (&site.engines.engine, deployed.workload.id);
    let repair = workload::start_operation(engine, &admin(), id, &Precondition::Any, request).await.unwrap();
    let repaired = site.end_of(repair.operation.id).await;
    assert_eq!((repaired.operation.state, repaired.steps.len()), (OperationState::NeedsAttention, 4));
    site.engines.nodes.end_tasks(vec![done(json!({})); 2]);
    let resumed = site.resume_and_wait(id).await;
    assert_eq!(resumed.operation.targets, [resumed.members[1].id]);
    assert_eq!(resumed.steps.keys().collect::<Vec<_>>(), ["unit-2/join", "unit-2/prepare"]);
    assert_eq!(resumed.operation.state, OperationState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_repair_refers_to_the_page_of_its_fault_instead_of_advising_itself() {
    let site = Site::of(1).await;
    let broken = || failed(Code::HostFailed, BROKEN);
    site.engines.nodes.end_tasks([broken(), broken()]);
    let deployed = site.deploy_and_wait(|of| vec![task("server", of, 0)]).await;
    let repair = "gpuaas workload repair train --scope member --member unit-1";
    let advised = |of: &OperationRecord| of.fault.clone().expect("a fault").next;
    assert_eq!(advised(&deployed.operation).command.as_deref(), Some(repair), "nothing was repaired yet");
    let request = OperationRequest::of(OperationKind::Repair);
    let (engine, id) = (&site.engines.engine, deployed.workload.id);
    let started = workload::start_operation(engine, &admin(), id, &Precondition::Any, request).await.unwrap();
    let next = advised(&site.end_of(started.operation.id).await.operation);
    assert_eq!(next.command.as_deref(), Some("gpuaas explain host_failed"));
    assert!(next.text.contains(&format!("repeat it: {repair};")), "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_that_needed_attention_is_failed_once_a_later_one_takes_its_place() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks(vec![failed(Code::ClusterNotReady, "no readiness"); 2]);
    let first = site.deploy_and_wait(|of| vec![task("server", of, 0)]).await;
    let second = site.resume_and_wait(first.workload.id).await;
    let removed = site.decommission_and_wait(first.workload.id, |_| vec![milestone("removed")]).await;
    assert_eq!(second.operation.state, OperationState::NeedsAttention, "until the workload is decommissioned");
    let mut reader = site.engines.store().read().await.unwrap();
    for (id, later) in [(first.operation.id, second.operation.id), (second.operation.id, removed.operation.id)] {
        let ended = reader.operation(id).await.unwrap();
        assert_eq!((ended.state, ended.superseded_by), (OperationState::Failed, Some(later)));
        assert_eq!(ended.fault.map(|fault| fault.code).as_deref(), Some("cluster_not_ready"), "its reason is kept");
        assert_eq!(removed.count_events(EventKind::OperationSuperseded, &id.to_string()), 1);
    }
    assert_eq!(removed.operation.superseded_by, None);
    let audit = reader.audits(&AuditFilter::default()).await.unwrap();
    let named: Vec<_> = audit.iter().filter_map(|record| record.metadata["supersedes"].as_str()).collect();
    assert_eq!(named, [first.operation.id.to_string(), second.operation.id.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interruptions_use_up_no_attempts_and_a_step_without_retries_is_not_repeated() {
    let site = Site::of(2).await;
    let again = || failed(Code::Unavailable, AGAIN);
    site.engines.nodes.end_tasks([TaskLine::Interrupted, again(), TaskLine::Interrupted, again(), again()]);
    let ended = site.deploy_and_wait(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    let step = &ended.steps["install"];
    assert_eq!((code(&ended), step.attempts, step.interruptions), (Some("unavailable"), 5, 2));
    let other = Site::of(1).await;
    other.engines.nodes.end_tasks([TaskLine::Interrupted]);
    let ended = other.deploy_and_wait(|of| vec![StepSpec { retry: Retry::NEVER, ..task("install", of, 0) }]).await;
    assert_eq!((code(&ended), ended.steps["install"].attempts), (Some("task_interrupted"), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_survives_as_many_failed_members_of_a_component_as_may_fail() {
    let planned = |of: &gpuaas_planner::WorkloadView| {
        let scope = FailureScope::Component { component: "unit".to_owned(), may_fail: 1 };
        let unit = |key: &str, at| StepSpec { scope: scope.clone(), ..task(key, of, at) };
        let second = needs(unit("second", 1), &["settled"]);
        vec![unit("first", 0), StepSpec { after: vec![StepKey::named("first")], ..milestone("settled") }, second]
    };
    let site = Site::of(2).await;
    site.engines.nodes.end_tasks([failed(Code::HostFailed, "broken")]);
    let ended = site.deploy_and_wait(planned).await;
    let states = |ended: &crate::site::Ended| ["first", "second"].map(|key| ended.steps[key].state);
    assert_eq!(states(&ended), [StepState::Failed, StepState::Succeeded]);
    assert_eq!((ended.workload.lifecycle, ended.workload.fault), (Lifecycle::Running, None));
    let site = Site::of(2).await;
    site.engines.nodes.end_tasks(vec![failed(Code::HostFailed, "broken"); 2]);
    let ended = site.deploy_and_wait(planned).await;
    assert_eq!(states(&ended), [StepState::Failed, StepState::Failed]);
    assert_eq!(ended.workload.lifecycle, Lifecycle::Failed);
    assert_eq!(ended.workload.fault.map(|fault| fault.code).as_deref(), Some("host_failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_task_is_repeated_at_once_up_to_five_times() {
    let site = Site::of(2).await;
    // Interrupted according to the ledger, and as a failure that the agent itself reports.
    let died = [TaskLine::Interrupted, failed(Code::TaskInterrupted, "it died")];
    let planned = |of: &gpuaas_planner::WorkloadView| vec![StepSpec { retry: times(2), ..task("install", of, 0) }];
    site.engines.nodes.end_tasks(died.iter().cycle().take(4).cloned());
    let ended = site.deploy_and_wait(planned).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Succeeded, 5));
    let other = Site::of(1).await;
    other.engines.nodes.end_tasks(died.iter().cycle().take(9).cloned());
    let ended = other.deploy_and_wait(planned).await;
    assert_eq!((code(&ended), ended.steps["install"].attempts), (Some("task_interrupted"), 5));
    assert!(ended.operation.fault.as_ref().unwrap().next.text.contains("on gpu-"), "{:?}", ended.operation.fault);
    let filter = TaskFilter { operation: Some(ended.operation.id), ..TaskFilter::default() };
    let tasks = other.engines.store().read().await.unwrap().tasks(&filter).await.unwrap();
    assert!(tasks.len() == 5 && tasks.iter().all(|task| task.state == TaskState::Interrupted), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_state_follows_the_code_of_its_failure() {
    let ends = [
        (Code::TaskTimedOut, TaskState::Expired),
        (Code::EnvelopeExpired, TaskState::Expired),
        (Code::TaskCancelled, TaskState::Cancelled),
        (Code::ArtifactDigestMismatch, TaskState::Failed),
    ];
    for (code, state) in ends {
        let site = Site::of(1).await;
        site.engines.nodes.end_tasks([failed(code, "it is over")]);
        let ended = site.deploy_and_wait(|of| vec![task("install", of, 0)]).await;
        assert_eq!((ended.tasks["install"].state, ended.steps["install"].state), (state, StepState::Failed), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ping_is_interrupted_when_the_agent_dies() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks([failed(Code::TaskInterrupted, "it died")]);
    ping::ping(&site.engines.engine, &admin(), site.nodes[0]).await.expect_err("the ping was interrupted");
    let filter = TaskFilter { node: Some(site.nodes[0]), ..TaskFilter::default() };
    let tasks = site.engines.store().read().await.unwrap().tasks(&filter).await.unwrap();
    assert_eq!(tasks[0].state, TaskState::Interrupted);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_task_result_is_a_failure() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks([done(json!({ "changed": "perhaps" }))]);
    let ended = site
        .deploy_and_wait(|of| {
            let node = of.members[0].place.node().unwrap();
            let stop = StepAction::NodeTask { node, task: gpuaas_model::TaskType::Rke2Stop };
            vec![StepSpec { action: stop, ..task("stop", of, 0) }]
        })
        .await;
    assert_eq!(code(&ended), Some("task_result_invalid"));
}

#[tokio::test(flavor = "multi_thread")]
async fn step_times_out_at_its_deadline() {
    let site = Site::of(1).await;
    site.engines.nodes.react([Reaction::Disconnected]);
    let short = |step: StepSpec| StepSpec { deadline_ms: 2_000, ..step };
    let ended =
        site.deploy_and_wait(move |of| vec![short(task("install", of, 0)), short(call("watch", "hangs"))]).await;
    let code_of = |key: &str| ended.steps[key].fault.as_ref().unwrap().code.clone();
    assert_eq!((code_of("install"), code_of("watch")), ("task_timed_out".to_owned(), "task_timed_out".to_owned()));
    let task = &ended.tasks["install"];
    assert_eq!(site.engines.nodes.cancelled.lock().unwrap()[..], [(task.node, task.id)], "the node is asked to cancel");
}

/// Starts a deployment that confirms its placement once its first task ends. Returns the sender that ends this task.
async fn deploy_until_placement(site: &Site, deadline_ms: u64) -> (OperationId, oneshot::Sender<TaskLine>) {
    let (end, reaction) = hold("first");
    site.engines.nodes.react([reaction]);
    let confirm = StepAction::Record { record: RecordKind::ConfirmPlacement };
    let (_, operation) = site
        .deploy(move |of| {
            let confirm = StepSpec { action: confirm.clone(), deadline_ms, ..milestone("placement") };
            vec![task("first", of, 0), needs(confirm, &["first"])]
        })
        .await;
    site.until(operation, "first", |step| step.state == StepState::Running && step.detail.is_some()).await;
    (operation, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn placement_fails_when_an_allocation_became_unusable() {
    for (is_released, is_unreachable) in [(false, false), (true, false), (false, true)] {
        let site = Site::of(2).await;
        let (operation, end) = deploy_until_placement(&site, 600_000).await;
        if is_released {
            let mut tx = site.engines.store().begin().await.unwrap();
            let mut allocation = tx.allocation(site.allocations[1]).await.unwrap();
            allocation.state = AllocationState::Releasing;
            tx.update_allocation(&allocation).await.unwrap();
            tx.commit().await.unwrap();
        }
        if is_unreachable {
            site.disconnect(1).await;
            site.mark_unreachable(1).await;
        }
        end.send(done(json!({}))).unwrap();
        let ended = site.end_of(operation).await;
        let refused = (is_released || is_unreachable).then_some("allocation_unreachable");
        assert_eq!(code(&ended), refused);
        if let Some(fault) = &ended.operation.fault {
            assert!(fault.summary.contains("gpu-2"), "{}", fault.summary);
        }
    }
}

/// The next event after a placement cannot be confirmed because its node is away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NodeOutcome {
    Returns,
    DoesNotReturn,
    StaysDisconnected,
    OperationIsCancelled,
}

#[tokio::test(flavor = "multi_thread")]
async fn placement_waits_for_a_node_that_disconnected_recently() {
    for (then, state, fault) in [
        (NodeOutcome::Returns, OperationState::Succeeded, None),
        (NodeOutcome::DoesNotReturn, OperationState::NeedsAttention, Some("allocation_unreachable")),
        (NodeOutcome::StaysDisconnected, OperationState::NeedsAttention, Some("allocation_unreachable")),
        (NodeOutcome::OperationIsCancelled, OperationState::Cancelled, None),
    ] {
        let site = Site::of(2).await;
        let deadline = if then == NodeOutcome::StaysDisconnected { 10_000 } else { 6_000_000 };
        let (operation, end) = deploy_until_placement(&site, deadline).await;
        site.disconnect(1).await;
        end.send(done(json!({}))).unwrap();
        site.until(operation, "placement", |step| step.detail.as_ref().is_some_and(|text| text.contains("gpu-2")))
            .await;
        match then {
            NodeOutcome::Returns => site.reconnect(1).await,
            NodeOutcome::DoesNotReturn => site.mark_unreachable(1).await,
            NodeOutcome::StaysDisconnected => {}
            NodeOutcome::OperationIsCancelled => site.cancel(operation).await,
        }
        let ended = site.end_of(operation).await;
        let placement = &ended.steps["placement"];
        assert_eq!((ended.operation.state, code(&ended), placement.attempts), (state, fault, 1), "{then:?}");
    }
}
