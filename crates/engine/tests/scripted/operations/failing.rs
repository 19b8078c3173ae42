//! Operations with failures.

use gpuaas_engine::{commands::ping, port::TaskUpdate};
use gpuaas_model::{
    AllocationState, Code, Health, MemberEvent, MemberStateName, OperationId, OperationState, StepState, TaskState,
};
use gpuaas_planner::{FailureScope, RecordKind, StepAction, StepSpec};
use gpuaas_store::{MemberRecord, TaskFilter};
use gpuaas_wire::task::TaskOutcome;
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    kit::{AGAIN, call, fault, milestone, needs, task, times},
    nodes::{Act, done, failed, held},
    site::Site,
    world::admin,
};

fn code(ended: &crate::site::Ended) -> Option<&str> {
    ended.operation.fault.as_ref().map(|fault| fault.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_tried_again_is_tried_as_often_as_the_plan_allows() {
    let site = Site::of(1).await;
    site.world.nodes.will_end(vec![failed(Code::Unavailable, AGAIN); 9]);
    let ended = site.deployed(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.steps["install"].attempts, site.world.nodes.sent()), (3, 3));
    assert_eq!((ended.operation.state, code(&ended)), (OperationState::NeedsAttention, Some("unavailable")));
    assert_eq!(ended.steps["install"].fault, ended.operation.fault);
    let Some(TaskOutcome::Failed { failure }) = &ended.tasks["install"].outcome else { panic!("it failed") };
    assert_eq!((failure.message.as_str(), ended.tasks["install"].attempt), (AGAIN, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_goes_well_makes_up_for_those_before_it() {
    let site = Site::of(1).await;
    site.world.nodes.will_end([failed(Code::Unavailable, AGAIN), failed(Code::Unavailable, AGAIN)]);
    let ended = site.deployed(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Succeeded, 3));
    assert_eq!((&ended.operation.fault, &ended.steps["install"].fault), (&None, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_tried_again_is_not() {
    let site = Site::of(1).await;
    site.world.nodes.will_end([failed(Code::ArtifactDigestMismatch, "another file")]);
    let ended = site.deployed(|of| vec![StepSpec { retry: times(3), ..task("install", of, 0) }]).await;
    assert_eq!((ended.steps["install"].attempts, code(&ended)), (1, Some("artifact_digest_mismatch")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_failure_is_the_members_and_a_resume_takes_it_back() {
    let site = Site::of(2).await;
    let planned = |of: &gpuaas_planner::WorkloadView| {
        let join = StepSpec {
            begins: Some(MemberEvent::Join),
            ends: Some(MemberEvent::BecameReady),
            ..needs(task("join", of, 1), &["prepare"])
        };
        let prepare = StepSpec { begins: Some(MemberEvent::Prepare), ..task("prepare", of, 1) };
        vec![prepare, join, milestone("other")]
    };
    site.world.nodes.will_end([done(json!({})), failed(Code::ClusterNotReady, "no readiness")]);
    let ended = site.deployed(planned).await;
    let [well, unwell] = &ended.members[..] else { panic!("two members") };
    assert_eq!((well.state.name(), well.health), (MemberStateName::Pending, Health::Progressing));
    assert_eq!((unwell.state.name(), unwell.health), (MemberStateName::Failed, Health::Failed));
    assert_eq!(ended.workload.fault, None, "the rest of it goes on");
    assert_eq!(ended.steps["other"].state, StepState::Succeeded);
    assert_eq!((ended.operation.state, code(&ended)), (OperationState::NeedsAttention, Some("cluster_not_ready")));
    assert_eq!(ended.workload.observed_generation, 0, "it is not yet what was asked for");
    // A fault from the unit's reports in the meantime; the successful resume clears it.
    let mut tx = site.world.store().begin().await.unwrap();
    let signalled = MemberRecord { fault: Some(fault(Code::ClusterNotReady, "it restarts")), ..unwell.clone() };
    tx.update_member(&signalled, unwell.state.name()).await.unwrap();
    tx.commit().await.unwrap();
    let again = site.resumed(ended.workload.id).await;
    assert_eq!((again.operation.state, again.operation.resumes), (OperationState::Succeeded, Some(ended.operation.id)));
    assert_eq!((again.members[1].state.name(), again.members[1].health), (MemberStateName::Ready, Health::Healthy));
    assert_eq!((again.members[1].fault.as_ref(), again.workload.observed_generation), (None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_without_which_the_workload_cannot_be_is_the_workloads_until_it_went_well() {
    let site = Site::of(1).await;
    let planned = |of: &gpuaas_planner::WorkloadView| {
        let server = StepSpec { scope: FailureScope::Workload, ..task("server", of, 0) };
        vec![server, needs(milestone("ready"), &["server"])]
    };
    site.world.nodes.will_end([failed(Code::ClusterNotReady, "no readiness")]);
    let ended = site.deployed(planned).await;
    assert_eq!(ended.workload.fault.as_ref().map(|fault| fault.code.as_str()), Some("cluster_not_ready"));
    let never = &ended.steps["ready"];
    assert_eq!((never.state, never.attempts, never.ended_at.is_some()), (StepState::Skipped, 0, true));
    let again = site.resumed(ended.workload.id).await;
    assert_eq!((again.operation.state, again.workload.fault), (OperationState::Succeeded, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_in_which_the_agent_died_is_repeated_at_once_and_left_to_a_person_after_five_times() {
    let site = Site::of(2).await;
    // Interrupted according to the ledger, and as a failure that the agent itself reports.
    let died = [TaskUpdate::Interrupted, failed(Code::TaskInterrupted, "it died")];
    site.world.nodes.will_end(died.iter().cycle().take(4).cloned());
    let ended = site.deployed(|of| vec![task("install", of, 0)]).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Succeeded, 5));
    let other = Site::of(1).await;
    other.world.nodes.will_end(died.iter().cycle().take(9).cloned());
    let ended = other.deployed(|of| vec![task("install", of, 0)]).await;
    assert_eq!((code(&ended), ended.steps["install"].attempts), (Some("task_interrupted"), 5));
    let filter = TaskFilter { operation: Some(ended.operation.id), ..TaskFilter::default() };
    let tasks = other.world.store().read().await.unwrap().tasks(&filter).await.unwrap();
    assert!(tasks.len() == 5 && tasks.iter().all(|task| task.state == TaskState::Interrupted), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_task_says_how_it_ended() {
    let ends = [
        (Code::TaskTimedOut, TaskState::Expired),
        (Code::EnvelopeExpired, TaskState::Expired),
        (Code::TaskCancelled, TaskState::Cancelled),
        (Code::ArtifactDigestMismatch, TaskState::Failed),
    ];
    for (code, state) in ends {
        let site = Site::of(1).await;
        site.world.nodes.will_end([failed(code, "it is over")]);
        let ended = site.deployed(|of| vec![task("install", of, 0)]).await;
        assert_eq!((ended.tasks["install"].state, ended.steps["install"].state), (state, StepState::Failed), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_in_which_the_agent_died_is_interrupted_as_well() {
    let site = Site::of(1).await;
    site.world.nodes.will_end([failed(Code::TaskInterrupted, "it died")]);
    ping::ping(&site.world.engine, &admin(), site.nodes[0]).await.expect_err("nobody knows how far it came");
    let filter = TaskFilter { node: Some(site.nodes[0]), ..TaskFilter::default() };
    let tasks = site.world.store().read().await.unwrap().tasks(&filter).await.unwrap();
    assert_eq!(tasks[0].state, TaskState::Interrupted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_no_task_of_its_type_gives_is_a_failure() {
    let site = Site::of(1).await;
    site.world.nodes.will_end([done(json!({ "changed": "perhaps" }))]);
    let ended = site
        .deployed(|of| {
            let node = of.members[0].node.id;
            let stop = StepAction::NodeTask { node, task: gpuaas_model::TaskType::Rke2Stop };
            vec![StepSpec { action: stop, ..task("stop", of, 0) }]
        })
        .await;
    assert_eq!(code(&ended), Some("answer_invalid"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_does_not_end_by_its_deadline_is_given_up() {
    let site = Site::of(1).await;
    site.world.nodes.will([Act::Absent]);
    let short = |step: StepSpec| StepSpec { deadline_ms: 2_000, ..step };
    let ended = site.deployed(move |of| vec![short(task("install", of, 0)), short(call("watch", "hangs"))]).await;
    let code_of = |key: &str| ended.steps[key].fault.as_ref().unwrap().code.clone();
    assert_eq!((code_of("install"), code_of("watch")), ("task_timed_out".to_owned(), "task_timed_out".to_owned()));
    let task = &ended.tasks["install"];
    assert_eq!(site.world.nodes.cancelled.lock().unwrap()[..], [(task.node, task.id)], "should it still come");
}

/// Starts a deployment that confirms its placement once its first task ends. Returns the sender that ends this task.
async fn about_to_confirm(site: &Site, deadline_ms: u64) -> (OperationId, oneshot::Sender<TaskUpdate>) {
    let (end, act) = held("first");
    site.world.nodes.will([act]);
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
async fn a_place_that_is_no_longer_usable_when_its_turn_comes_is_refused() {
    for (is_gone, is_lost) in [(false, false), (true, false), (false, true)] {
        let site = Site::of(2).await;
        let (operation, end) = about_to_confirm(&site, 600_000).await;
        if is_gone {
            let mut tx = site.world.store().begin().await.unwrap();
            let mut allocation = tx.allocation(site.allocations[1]).await.unwrap();
            allocation.state = AllocationState::Releasing;
            tx.update_allocation(&allocation).await.unwrap();
            tx.commit().await.unwrap();
        }
        if is_lost {
            site.goes_away(1).await;
            site.does_not_return(1).await;
        }
        end.send(done(json!({}))).unwrap();
        let ended = site.end_of(operation).await;
        let refused = (is_gone || is_lost).then_some("allocation_unreachable");
        assert_eq!(code(&ended), refused);
        if let Some(fault) = &ended.operation.fault {
            assert!(fault.summary.contains("gpu-2"), "{}", fault.summary);
        }
    }
}

/// The next event after a placement cannot be confirmed because its node is away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Returns,
    DoesNotReturn,
    StaysAway,
    IsNotWaitedForAnyMore,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_for_a_moment_when_its_place_is_confirmed_is_waited_for() {
    for (then, state, fault) in [
        (Then::Returns, OperationState::Succeeded, None),
        (Then::DoesNotReturn, OperationState::NeedsAttention, Some("allocation_unreachable")),
        (Then::StaysAway, OperationState::NeedsAttention, Some("allocation_unreachable")),
        (Then::IsNotWaitedForAnyMore, OperationState::Cancelled, None),
    ] {
        let site = Site::of(2).await;
        let deadline = if then == Then::StaysAway { 10_000 } else { 6_000_000 };
        let (operation, end) = about_to_confirm(&site, deadline).await;
        site.goes_away(1).await;
        end.send(done(json!({}))).unwrap();
        site.until(operation, "placement", |step| step.detail.as_ref().is_some_and(|text| text.contains("gpu-2")))
            .await;
        match then {
            Then::Returns => site.returns(1).await,
            Then::DoesNotReturn => site.does_not_return(1).await,
            Then::StaysAway => {}
            Then::IsNotWaitedForAnyMore => site.cancel(operation).await,
        }
        let ended = site.end_of(operation).await;
        let placement = &ended.steps["placement"];
        assert_eq!((ended.operation.state, code(&ended), placement.attempts), (state, fault, 1), "{then:?}");
    }
}
