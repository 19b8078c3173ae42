//! Operations that succeed.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gpuaas_engine::{Precondition, commands::workload};
use gpuaas_model::{
    AuditAction, Endpoint, EventKind, Health, MemberEvent, MemberStateName, OperationState, StepState, TaskState,
    TaskType,
};
use gpuaas_planner::{StepAction, StepOutput, StepSpec, WorkloadView};
use gpuaas_store::{AuditFilter, Gate, StoreError, TaskFilter};
use serde_json::json;

use crate::{
    engines::admin,
    kit::{call, milestone, needs, task},
    nodes::hold,
    site::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn operation_start_and_end_are_announced_once() {
    let site = Site::of(1).await;
    let before = site.engines.engine.ports().clock.now();
    let ended =
        site.deploy_and_wait(|of| vec![task("first", of, 0), needs(call("second", "answers"), &["first"])]).await;
    let (began, over) = (ended.operation.started_at.unwrap(), ended.operation.ended_at.unwrap());
    assert!(before <= began && began < over, "{before} {began} {over}");
    assert_eq!(ended.operation.state, OperationState::Succeeded);
    let id = ended.operation.id.to_string();
    assert_eq!(
        (ended.count_events(EventKind::OperationStarted, &id), ended.count_events(EventKind::OperationEnded, &id)),
        (1, 1)
    );
    let first = |kind| ended.events.iter().position(|event| event.kind == kind);
    assert!(first(EventKind::OperationStarted) < first(EventKind::StepChanged), "with its first step");
    assert!(ended.steps.values().all(|step| step.state == StepState::Succeeded && step.attempts == 1));
    assert!(ended.steps["first"].started_at.unwrap() >= began, "it begins with its first step");
    // Accepted, started, first step done, second step done, ended: each changes the visible workload; there are no other events.
    assert_eq!(ended.count_events(EventKind::WorkloadChanged, &ended.workload.id.to_string()), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_operation_is_audited_with_its_id_and_members() {
    let site = Site::of(2).await;
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let removed = site.decommission_and_wait(deployed.workload.id, |_| vec![milestone("removed")]).await;
    let audit = site.engines.store().read().await.unwrap().audits(&AuditFilter::default()).await.unwrap();
    let of = |action| &audit.iter().find(|record| record.action == action).unwrap().metadata;
    let metadata = of(AuditAction::WorkloadDeploy);
    assert_eq!((&metadata["app"], &metadata["version"]), (&json!("kit"), &json!("1")));
    for (metadata, ended) in [(metadata, &deployed), (of(AuditAction::WorkloadDecommission), &removed)] {
        assert_eq!(metadata["operation"], json!(ended.operation.id));
        assert_eq!(metadata["members"], "unit-1 on gpu-1, unit-2 on gpu-2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replica_accepts_is_the_newest_although_its_clock_is_behind() {
    let site = Site::of(2).await;
    let on = |at: usize| workload::Deploy { intent: json!([site.allocations[at]]), ..site.request() };
    site.engines.kit.set_plan(|_| vec![milestone("ready")]);
    let first = workload::deploy(&site.engines.engine, &admin(), on(0)).await.unwrap();
    let first = site.end_of(first.operation.id).await.workload.id;
    let behind = site.engines.one_hour_behind().await;
    let accepted = workload::decommission(&behind, &admin(), first, &Precondition::Any).await.unwrap();
    let newest = site.engines.store().read().await.unwrap().newest_operation(first).await.unwrap();
    assert_eq!(newest.map(|newest| newest.id), Some(accepted.operation.id));
    site.end_of(accepted.operation.id).await;
    let second = workload::deploy(&behind, &admin(), on(1)).await.unwrap().workload;
    let mut reader = site.engines.store().read().await.unwrap();
    let named = reader.workload_by_name(second.project, second.name.as_str()).await.unwrap();
    assert_eq!(named.map(|named| named.id), Some(second.id), "the name means the workload that runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn step_changes_only_its_own_member() {
    let site = Site::of(2).await;
    let ended = site
        .deploy_and_wait(|of| {
            let prepare = StepSpec { on_first_start: Some(MemberEvent::Prepare), ..task("prepare", of, 1) };
            let join = StepSpec {
                on_first_start: Some(MemberEvent::Join),
                on_success: Some(MemberEvent::BecameReady),
                ..task("join", of, 1)
            };
            vec![prepare, needs(join, &["prepare"])]
        })
        .await;
    let [still, moved] = &ended.members[..] else { panic!("two members") };
    assert_eq!((still.state.name(), still.health), (MemberStateName::Pending, Health::Progressing));
    assert_eq!((still.last_operation, moved.last_operation), (None, Some(ended.operation.id)));
    assert_eq!((moved.state.name(), moved.health), (MemberStateName::Ready, Health::Healthy));
    assert_eq!(ended.count_events(EventKind::MemberChanged, &moved.id.to_string()), 3, "preparing, joining, ready");
    assert_eq!(ended.count_events(EventKind::MemberChanged, &still.id.to_string()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_signed_in_the_schema_of_its_app() {
    let site = Site::of(1).await;
    let ended = site
        .deploy_and_wait(|of| {
            let StepSpec { action: StepAction::NodeTask { node, .. }, .. } = task("", of, 0) else { unreachable!() };
            let stop = StepAction::NodeTask { node, task: TaskType::Rke2Stop };
            vec![task("noop", of, 0), StepSpec { action: stop, ..task("stop", of, 0) }]
        })
        .await;
    assert_eq!((ended.tasks["noop"].schema, ended.tasks["stop"].schema), (3, 7));
    assert!(ended.tasks.values().all(|task| task.state == TaskState::Succeeded && task.attempt == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_task_that_changes_its_node_touches_a_member() {
    let site = Site::of(3).await;
    let ended = site
        .deploy_and_wait(|of| {
            let node = of.members[1].place.node().unwrap();
            let stop = StepAction::NodeTask { node, task: TaskType::Rke2Stop };
            vec![task("looks", of, 0), StepSpec { action: stop, ..task("changes", of, 1) }, milestone("other")]
        })
        .await;
    let touched: Vec<bool> = ended.members.iter().map(|member| member.touched).collect();
    assert_eq!(touched, [false, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_stored_by_purpose_until_decommission() {
    let site = Site::of(2).await;
    let outputs = vec![
        StepOutput::Endpoint { purpose: "api".to_owned(), address: "https://10.0.0.2:6443".to_owned() },
        StepOutput::Endpoint { purpose: "metrics".to_owned(), address: "https://10.0.0.2:9345".to_owned() },
        StepOutput::Fact("name".to_owned(), json!("gpu-2")),
    ];
    let moved = StepOutput::Endpoint { purpose: "api".to_owned(), address: "https://10.0.0.3:6443".to_owned() };
    site.engines.kit.set_outputs("start", [Ok(outputs)]);
    site.engines.kit.set_outputs("again", [Ok(vec![moved])]);
    let planned = |of: &WorkloadView| vec![task("start", of, 1), needs(task("again", of, 1), &["start"])];
    let ended = site.deploy_and_wait(planned).await;
    let member = Some(ended.members[1].id);
    let endpoint =
        |purpose: &str, address: &str| Endpoint { purpose: purpose.to_owned(), address: address.to_owned(), member };
    let wanted = [endpoint("metrics", "https://10.0.0.2:9345"), endpoint("api", "https://10.0.0.3:6443")];
    assert_eq!(ended.workload.endpoints, wanted, "a newer address of the same purpose replaces the earlier one");
    assert_eq!(ended.workload.facts["name"], json!("gpu-2"));
    assert_eq!((ended.workload.generation, ended.workload.observed_generation), (1, 1));
    let decommissioned = site.decommission_and_wait(ended.workload.id, |_| vec![milestone("removed")]).await;
    assert_eq!(decommissioned.workload.endpoints, []);
    assert_eq!((decommissioned.workload.generation, decommissioned.workload.observed_generation), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_announced_once_per_change() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(|of| vec![task("install", of, 0), call("watch", "hangs")]).await;
    site.until(operation, "install", |step| step.detail.as_deref() == Some("unpacking")).await;
    site.until(operation, "watch", |step| step.detail.as_deref() == Some("waiting for the cluster")).await;
    drop(end);
    // The node is lost, reconnects and reports the same progress again.
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    site.until(operation, "install", |step| step.detail.as_deref().is_some_and(|detail| detail.contains("waiting")))
        .await;
    site.until(operation, "install", |step| step.detail.as_deref() == Some("unpacking")).await;
    end.send(crate::nodes::done(json!({}))).unwrap();
    site.until(operation, "install", |step| step.state == StepState::Succeeded).await;
    site.cancel(operation).await;
    let ended = site.end_of(operation).await;
    let changes = |key: &str| ended.count_events(EventKind::StepChanged, &ended.steps[key].id.to_string());
    // `install`: started, unpacking, waiting for the node, unpacking, ended. `watch`: started, waiting, ended.
    assert_eq!((changes("install"), changes("watch")), (5, 3));
    assert_eq!(ended.steps["install"].attempts, 1, "a node that reconnects answers the same attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_continues_the_same_task() {
    let site = Site::of(1).await;
    // The task never ends for the first engine.
    let (_end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(|of| vec![task("install", of, 0)]).await;
    site.until(operation, "install", |step| step.state == StepState::Running && step.detail.is_some()).await;
    site.engines.engine.stop();
    site.engines.engine.leave().await.unwrap();
    let successor = site.engines.successor().await;
    successor.join().await.unwrap();
    let engine = successor.clone();
    tokio::spawn(async move { engine.run().await });
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["install"].attempts), (OperationState::Succeeded, 1));
    assert_eq!((site.engines.nodes.sent(), ended.tasks["install"].state), (2, TaskState::Succeeded));
    let filter = TaskFilter { operation: Some(operation), ..TaskFilter::default() };
    assert_eq!(site.engines.store().read().await.unwrap().tasks(&filter).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_retries_reads_at_its_start() {
    let site = Site::of(1).await;
    let (_end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(|of| vec![task("install", of, 0)]).await;
    site.until(operation, "install", |step| step.state == StepState::Running && step.detail.is_some()).await;
    site.engines.engine.stop();
    site.engines.engine.leave().await.unwrap();
    // The first three reads of the successor's loop fail.
    let refusals = Arc::new(AtomicU32::new(0));
    let left = refusals.clone();
    let gate: Gate = Arc::new(move || {
        let is_refused = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        Box::pin(async move { if is_refused { Err(StoreError::Busy) } else { Ok(()) } })
    });
    let successor = site.engines.successor_behind(gate).await;
    successor.join().await.unwrap();
    refusals.store(3, Ordering::Relaxed);
    let engine = successor.clone();
    tokio::spawn(async move { engine.run().await });
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, refusals.load(Ordering::Relaxed)), (OperationState::Succeeded, 0));
}
