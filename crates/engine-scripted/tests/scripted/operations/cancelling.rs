//! Cancellation of operations.

use std::sync::atomic::Ordering;

use gpuaas_model::{
    AuditAction, Code, EventKind, Health, Lifecycle, MemberStateName, OperationState, Recovery, StepState, TaskState,
    TaskType,
};
use gpuaas_planner::{StepAction, StepSpec, WorkloadView};
use gpuaas_store::WorkloadRecord;

use crate::{
    engines::eventually,
    kit::{AGAIN, call, milestone, needs, task, times},
    nodes::{Reaction, failed, hold},
    site::{Ended, Site},
};

fn planned(of: &WorkloadView) -> Vec<StepSpec> {
    let install = StepSpec { retry: times(9), ..task("install", of, 0) };
    vec![install, call("watch", "hangs"), needs(milestone("after"), &["install"])]
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_ends_running_steps_and_skips_pending_ones() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.until(operation, "watch", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    site.cancel(operation).await;
    site.until(operation, "watch", |step| step.state == StepState::Cancelled).await;
    eventually("no cancellation is sent", async || !site.engines.nodes.cancelled.lock().unwrap().is_empty()).await;
    end.send(failed(Code::TaskCancelled, "cancelled")).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, &ended.operation.fault), (OperationState::Cancelled, &None));
    let requested = ended.count_events(EventKind::OperationCancelRequested, &operation.to_string());
    assert_eq!(requested, 1, "repeating the request changes nothing");
    assert_eq!(site.engines.recorded(AuditAction::OperationCancel).await, 1, "and leaves no audit record");
    let state = |key: &str| (ended.steps[key].state, ended.steps[key].attempts);
    assert_eq!((state("install"), state("watch")), ((StepState::Cancelled, 1), (StepState::Cancelled, 1)));
    assert_eq!(state("after"), (StepState::Skipped, 0));
    let task = &ended.tasks["install"];
    assert_eq!(task.state, TaskState::Cancelled);
    assert_eq!(site.engines.nodes.cancelled.lock().unwrap()[..], [(task.node, task.id)], "once, for this task only");
    let member = &ended.members[0];
    assert_eq!((member.state.name(), member.health), (MemberStateName::Failed, Health::Failed), "nothing prepares it");
    assert_eq!(member.state.fault(), ended.workload.fault.as_ref());
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_fails_during_cancellation_is_not_retried() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    site.until(operation, "watch", |step| step.state == StepState::Cancelled).await;
    end.send(failed(Code::Unavailable, AGAIN)).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.steps["install"].state, ended.steps["install"].attempts), (StepState::Failed, 1));
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_with_a_failed_step_leaves_no_member_unfinished() {
    let site = Site::of(2).await;
    let (ends, reactions): (Vec<_>, Vec<_>) = (0..2).map(|_| hold("unpacking")).unzip();
    site.engines.nodes.react(reactions);
    let (_, operation) = site.deploy(|of| vec![task("first", of, 0), task("second", of, 1)]).await;
    eventually("not both are sent", async || site.engines.nodes.sent() == 2).await;
    site.cancel(operation).await;
    eventually("not both are cancelled", async || site.engines.nodes.cancelled.lock().unwrap().len() == 2).await;
    for (end, code) in ends.into_iter().zip([Code::Unavailable, Code::TaskCancelled]) {
        end.send(failed(code, AGAIN)).unwrap();
    }
    let ended = site.end_of(operation).await;
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
    let states: Vec<_> = ended.members.iter().map(|member| member.state.name()).collect();
    assert_eq!(states, [MemberStateName::Failed; 2], "nothing changes them any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_is_sent_again_to_a_node_that_was_disconnected() {
    let site = Site::of(1).await;
    site.engines.nodes.react([Reaction::Disconnected]);
    let (_, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    eventually("the cancellation is not sent", async || site.engines.nodes.cancelled.lock().unwrap().len() == 1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    // A node that connects wakes every step that waits for a node.
    site.engines.node("gpu-9").await;
    eventually("it is not cancelled again", async || site.engines.nodes.cancelled.lock().unwrap().len() == 2).await;
    end.send(failed(Code::TaskCancelled, "cancelled")).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Cancelled, 1));
    let cancelled = site.engines.nodes.cancelled.lock().unwrap().clone();
    assert_eq!(cancelled, vec![(site.nodes[0], ended.tasks["install"].id); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_reaches_every_running_task() {
    let site = Site::of(1).await;
    let (ends, reactions): (Vec<_>, Vec<_>) = (0..100).map(|_| hold("unpacking")).unzip();
    site.engines.nodes.react(reactions);
    let (_, operation) =
        site.deploy(|of| (0..100).map(|number| task(&format!("install-{number}"), of, 0)).collect()).await;
    eventually("not all are sent", async || site.engines.nodes.sent() == 100).await;
    site.cancel(operation).await;
    eventually("not all tasks are cancelled", async || site.engines.nodes.cancelled.lock().unwrap().len() == 100).await;
    for end in ends {
        end.send(failed(Code::TaskCancelled, "cancelled")).unwrap();
    }
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_32_cancellations_wait_for_silent_nodes() {
    let site = Site::of(1).await;
    site.engines.nodes.ignores_cancellation.store(true, Ordering::Relaxed);
    let (ends, reactions): (Vec<_>, Vec<_>) = (0..40).map(|_| hold("unpacking")).unzip();
    site.engines.nodes.react(reactions);
    let (_, operation) = site
        .deploy(|of| {
            let tasks = (0..40).map(|number| task(&format!("install-{number}"), of, 0));
            tasks.chain([call("watch", "hangs")]).collect()
        })
        .await;
    eventually("not all are sent", async || site.engines.nodes.sent() == 40).await;
    site.cancel(operation).await;
    site.until(operation, "watch", |step| step.state == StepState::Cancelled).await;
    eventually("too few cancellations are sent", async || site.engines.nodes.cancelled.lock().unwrap().len() == 32)
        .await;
    for end in ends {
        end.send(failed(Code::TaskCancelled, "cancelled")).unwrap();
    }
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Cancelled);
    assert_eq!(site.engines.nodes.cancelled.lock().unwrap().len(), 32, "the others waited behind them");
}

/// Deploys, and cancels the deployment while a task changes its node.
async fn cancelled_deployment(site: &Site) -> Ended {
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let stop = |of: &WorkloadView| {
        let action = StepAction::NodeTask { node: of.members[0].place.node().unwrap(), task: TaskType::Rke2Stop };
        vec![StepSpec { action, ..task("install", of, 0) }]
    };
    let (_, operation) = site.deploy(stop).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    end.send(failed(Code::TaskCancelled, "cancelled")).unwrap();
    site.end_of(operation).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_deployment_names_what_it_left_until_it_is_resumed() {
    let site = Site::of(1).await;
    let workload = cancelled_deployment(&site).await.workload;
    let status = (workload.lifecycle, workload.health, workload.recovery);
    assert_eq!(status, (Lifecycle::Cancelled, Health::None, Recovery::Resumable));
    let fault = workload.fault.expect("a reason");
    assert_eq!(fault.code, "operation_cancelled");
    assert!(fault.summary.contains("on gpu-1"), "{}", fault.summary);
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload resume train"));
    assert!(fault.next.text.contains("gpuaas workload decommission train"), "{}", fault.next.text);
    site.engines.kit.set_plan(|of| vec![task("install", of, 0)]);
    let again = site.resume_and_wait(workload.id).await.workload;
    assert_eq!((again.lifecycle, again.fault), (Lifecycle::Running, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_of_an_earlier_version_are_updated() {
    let site = Site::of(1).await;
    let cancelled = cancelled_deployment(&site).await.workload;
    let write = async |workload: WorkloadRecord| {
        let mut tx = site.engines.store().begin().await.unwrap();
        tx.update_workload(&workload).await.unwrap();
        tx.commit().await.unwrap();
        site.engines.engine.update_former_statuses().await.unwrap();
        site.engines.store().read().await.unwrap().workload(workload.id).await.unwrap()
    };
    let former = WorkloadRecord { lifecycle: Lifecycle::Failed, health: Health::Failed, ..cancelled };
    let updated = write(former).await;
    assert_eq!((updated.lifecycle, updated.health), (Lifecycle::Cancelled, Health::None));
    let removed = site.decommission_and_wait(updated.id, |_| vec![milestone("removed")]).await.workload;
    assert_eq!((removed.lifecycle, removed.health), (Lifecycle::Decommissioned, Health::None));
    let updated = write(WorkloadRecord { health: Health::Healthy, ..removed }).await;
    assert_eq!((updated.lifecycle, updated.health), (Lifecycle::Decommissioned, Health::None));
}
