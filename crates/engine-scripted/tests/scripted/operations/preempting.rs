//! Requests of people while the platform reconciles.

use gpuaas_engine::{CommandError, Engine, Precondition, Revision, commands::workload};
use gpuaas_model::{AuditAction, Code, Coded, EventKind, OperationKind, OperationState, StepState, WorkloadId};
use gpuaas_planner::OperationRequest;
use gpuaas_wire::session::TaskLine;
use serde_json::json;
use tokio::sync::oneshot;

use super::drifting::{changed_file, checked, drift, newest, reconciliation, row, running};
use crate::{
    engines::{admin, eventually},
    nodes::{done, hold},
    site::Site,
};

fn upgrade() -> OperationRequest {
    let parameters = [("version".to_owned(), json!("2"))].into_iter().collect();
    OperationRequest { kind: OperationKind::Upgrade, parameters }
}

async fn start(engine: &Engine, id: WorkloadId, seen: &Precondition) -> Result<workload::Accepted, CommandError> {
    workload::start_operation(engine, &admin(), id, seen, upgrade()).await
}

/// Lets the platform begin a reconciliation whose first step ends when the test sends its end.
async fn held_reconciliation(site: &Site, id: WorkloadId) -> oneshot::Sender<TaskLine> {
    let (end, reaction) = hold("writing");
    site.engines.nodes.react([checked(), reaction]);
    drift(site, changed_file()).await;
    let operation = reconciliation(site, id).await;
    site.until(operation, "configure", |step| step.detail.is_some()).await;
    end
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_person_waits_for_the_running_step_and_then_begins() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    // Read before the platform begins: nothing that it changes makes the request fail.
    let seen = Precondition::Revisions(vec![Revision::from(&row(&site, id).await)]);
    let end = held_reconciliation(&site, id).await;
    let own = newest(&site, id).await.id;
    let engine = site.engines.engine.clone();
    let request = tokio::spawn(async move { start(&engine, id, &seen).await });
    eventually("it does not yield", async || newest(&site, id).await.is_ending()).await;
    assert!(!request.is_finished() && !newest(&site, id).await.cancel_requested);
    end.send(done(json!({}))).unwrap();
    let accepted = request.await.unwrap().expect("the request is accepted");
    let ended = site.end_of(own).await;
    assert_eq!(ended.operation.state, OperationState::Cancelled);
    let states = (ended.steps["configure"].state, ended.steps["enable"].state);
    assert_eq!(states, (StepState::Succeeded, StepState::Skipped), "it ended at a step's boundary");
    assert!(site.engines.nodes.cancelled.lock().unwrap().is_empty(), "no step was interrupted");
    let theirs = site.end_of(accepted.operation.id).await.operation;
    assert_eq!((theirs.state, theirs.requested_by.as_str()), (OperationState::Succeeded, "ada"));
    assert!(theirs.created_at >= ended.operation.ended_at.expect("it has ended"), "never two at once");
    assert_eq!(ended.count_events(EventKind::OperationCancelRequested, &own.to_string()), 1);
    assert_eq!(site.engines.recorded(AuditAction::OperationCancel).await, 1);
    assert_eq!(row(&site, id).await.drift.attempts, [], "what yields is no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_and_previews_do_not_disturb_the_reconciliation() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let end = held_reconciliation(&site, id).await;
    let engine = &site.engines.engine;
    let outdated = Precondition::Revisions(Vec::new());
    let refused = start(engine, id, &outdated).await.expect_err("another revision");
    assert_eq!(refused.code(), Code::PreconditionFailed);
    let invalid = OperationRequest::of(OperationKind::Upgrade);
    let refused = workload::start_operation(engine, &admin(), id, &Precondition::Any, invalid).await;
    assert_eq!(refused.expect_err("a parameter is missing").code(), Code::FieldInvalid);
    let preview = workload::preview_operation(engine, &admin(), id, &Precondition::Any, &upgrade()).await;
    assert!(preview.is_ok(), "{:?}", preview.err());
    assert!(!newest(&site, id).await.is_ending(), "it yields to none of them");
    end.send(done(json!({}))).unwrap();
    assert_eq!(site.end_of(newest(&site, id).await.id).await.operation.state, OperationState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_waits_for_too_long_names_the_running_step() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let end = held_reconciliation(&site, id).await;
    let own = newest(&site, id).await.id;
    let engine = &site.engines.engine;
    let refused = start(engine, id, &Precondition::Any).await.expect_err("the step does not end");
    assert_eq!(refused.code(), Code::OperationInProgress);
    let detail = refused.to_string();
    assert!(detail.contains(&own.to_string()) && detail.contains("configure (writing)"), "{detail}");
    assert!(refused.next().is_some_and(|next| next.contains("repeat the request")));
    end.send(done(json!({}))).unwrap();
    assert_eq!(site.end_of(own).await.operation.state, OperationState::Cancelled, "it still yields");
    start(engine, id, &Precondition::Any).await.expect("the repeated request is accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_still_yields_after_a_restart_of_the_platform() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let _end = held_reconciliation(&site, id).await;
    let own = newest(&site, id).await.id;
    let engine = site.engines.engine.clone();
    let request = tokio::spawn(async move { start(&engine, id, &Precondition::Any).await.map(drop) });
    eventually("it does not yield", async || newest(&site, id).await.is_ending()).await;
    site.engines.engine.stop();
    site.engines.engine.leave().await.unwrap();
    assert!(request.await.unwrap().is_err(), "nothing was accepted");
    let successor = site.engines.successor().await;
    successor.join().await.unwrap();
    let engine = successor.clone();
    tokio::spawn(async move { engine.run().await });
    let ended = site.end_of(own).await;
    assert_eq!((ended.operation.state, ended.steps["enable"].state), (OperationState::Cancelled, StepState::Skipped));
    let accepted = start(&successor, id, &Precondition::Any).await.expect("the repeated request is accepted");
    assert_eq!(site.end_of(accepted.operation.id).await.operation.state, OperationState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_of_a_person_does_not_yield() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let (end, reaction) = hold("upgrading");
    site.engines.nodes.react([reaction]);
    let engine = &site.engines.engine;
    let first = start(engine, id, &Precondition::Any).await.unwrap().operation.id;
    let refused = start(engine, id, &Precondition::Any).await.map(drop).expect_err("one at a time");
    assert_eq!(refused.code(), Code::OperationInProgress);
    assert!(refused.to_string().contains(&first.to_string()) && !newest(&site, id).await.is_ending());
    end.send(done(json!({}))).unwrap();
    assert_eq!(site.end_of(first).await.operation.state, OperationState::Succeeded);
}
