//! Cancellation of operations.

use std::sync::atomic::Ordering;

use gpuaas_model::{Code, MemberStateName, OperationState, StepState, TaskState};
use gpuaas_planner::{StepSpec, WorkloadView};

use crate::{
    kit::{AGAIN, call, milestone, needs, task, times},
    nodes::{Act, failed, held},
    site::Site,
    world::eventually,
};

fn planned(of: &WorkloadView) -> Vec<StepSpec> {
    let install = StepSpec { retry: times(9), ..task("install", of, 0) };
    vec![install, call("watch", "hangs"), needs(milestone("after"), &["install"])]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_told_to_end_and_what_has_not_begun_never_does() {
    let site = Site::of(1).await;
    let (end, act) = held("unpacking");
    site.world.nodes.will([act]);
    let (_, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.until(operation, "watch", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    site.until(operation, "watch", |step| step.state == StepState::Cancelled).await;
    eventually("the node is not told", async || !site.world.nodes.cancelled.lock().unwrap().is_empty()).await;
    end.send(failed(Code::TaskCancelled, "as asked")).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, &ended.operation.fault), (OperationState::Cancelled, &None));
    let state = |key: &str| (ended.steps[key].state, ended.steps[key].attempts);
    assert_eq!((state("install"), state("watch")), ((StepState::Cancelled, 1), (StepState::Cancelled, 1)));
    assert_eq!(state("after"), (StepState::Skipped, 0));
    let task = &ended.tasks["install"];
    assert_eq!(task.state, TaskState::Cancelled);
    assert_eq!(site.world.nodes.cancelled.lock().unwrap()[..], [(task.node, task.id)], "once, and nobody else");
    assert_eq!(ended.members[0].state.name(), MemberStateName::Pending, "nothing failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_while_it_is_told_to_end_is_not_tried_again() {
    let site = Site::of(1).await;
    let (end, act) = held("unpacking");
    site.world.nodes.will([act]);
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
async fn a_node_that_was_away_when_it_was_told_is_told_again_with_the_task() {
    let site = Site::of(1).await;
    site.world.nodes.will([Act::Absent]);
    let (_, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    site.cancel(operation).await;
    eventually("it is not tried", async || site.world.nodes.cancelled.lock().unwrap().len() == 1).await;
    let (end, act) = held("unpacking");
    site.world.nodes.will([act]);
    // A node that connects wakes every step that waits for a node.
    site.world.node("gpu-9").await;
    eventually("it is not told again", async || site.world.nodes.cancelled.lock().unwrap().len() == 2).await;
    end.send(failed(Code::TaskCancelled, "as asked")).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Cancelled, 1));
    let told = site.world.nodes.cancelled.lock().unwrap().clone();
    assert_eq!(told, vec![(site.nodes[0], ended.tasks["install"].id); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_runs_is_told_however_much_it_is() {
    let site = Site::of(1).await;
    let (ends, acts): (Vec<_>, Vec<_>) = (0..100).map(|_| held("unpacking")).unzip();
    site.world.nodes.will(acts);
    let (_, operation) =
        site.deploy(|of| (0..100).map(|number| task(&format!("install-{number}"), of, 0)).collect()).await;
    eventually("not all are sent", async || site.world.nodes.sent() == 100).await;
    site.cancel(operation).await;
    eventually("not all are told", async || site.world.nodes.cancelled.lock().unwrap().len() == 100).await;
    for end in ends {
        end.send(failed(Code::TaskCancelled, "as asked")).unwrap();
    }
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_do_not_take_the_word_hold_up_nothing_but_those_beyond_the_thirty_second() {
    let site = Site::of(1).await;
    site.world.nodes.is_deaf.store(true, Ordering::Relaxed);
    let (ends, acts): (Vec<_>, Vec<_>) = (0..40).map(|_| held("unpacking")).unzip();
    site.world.nodes.will(acts);
    let (_, operation) = site
        .deploy(|of| {
            let tasks = (0..40).map(|number| task(&format!("install-{number}"), of, 0));
            tasks.chain([call("watch", "hangs")]).collect()
        })
        .await;
    eventually("not all are sent", async || site.world.nodes.sent() == 40).await;
    site.cancel(operation).await;
    site.until(operation, "watch", |step| step.state == StepState::Cancelled).await;
    eventually("too few are told", async || site.world.nodes.cancelled.lock().unwrap().len() == 32).await;
    for end in ends {
        end.send(failed(Code::TaskCancelled, "as asked")).unwrap();
    }
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Cancelled);
    assert_eq!(site.world.nodes.cancelled.lock().unwrap().len(), 32, "the others waited behind them");
}
