//! Operations with parameters.

use gpuaas_engine::{CommandError, Precondition, commands::workload};
use gpuaas_model::{AuditAction, Code, Coded, Lifecycle, OperationKind, OperationState, WorkloadId};
use gpuaas_planner::OperationRequest;
use serde_json::{Value, json};

use crate::{
    engines::admin,
    kit::{milestone, task},
    nodes::failed,
    site::Site,
};

fn upgrade(parameters: Value) -> OperationRequest {
    OperationRequest { kind: OperationKind::Upgrade, parameters: parameters.as_object().unwrap().clone() }
}

async fn start(site: &Site, id: WorkloadId, request: OperationRequest) -> Result<workload::Accepted, CommandError> {
    workload::start_operation(&site.engines.engine, &admin(), id, &Precondition::Any, request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_stored_planned_and_kept_by_a_resume() {
    let site = Site::of(1).await;
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    assert!(deployed.operation.parameters.is_empty());
    site.engines.nodes.end_tasks([failed(Code::HostFailed, "broken")]);
    site.engines.kit.set_plan(|of| vec![task("install", of, 0)]);
    let request = upgrade(json!({ "version": "v2" }));
    let accepted = start(&site, deployed.workload.id, request.clone()).await.unwrap();
    let ended = site.end_of(accepted.operation.id).await;
    assert_eq!((ended.operation.request(), ended.operation.state), (request.clone(), OperationState::NeedsAttention));
    assert_eq!((ended.operation.targets.len(), ended.workload.generation), (1, 2));
    let resumed = site.resume_and_wait(deployed.workload.id).await;
    assert_eq!((resumed.operation.request(), resumed.operation.state), (request.clone(), OperationState::Succeeded));
    assert_eq!(resumed.operation.resumes, Some(ended.operation.id));
    let deploy = OperationRequest::of(OperationKind::Deploy);
    assert_eq!(*site.engines.kit.requested.lock().unwrap(), [deploy, request.clone(), request]);
    assert_eq!(site.engines.recorded(AuditAction::OperationStart).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_of_an_operation_changes_nothing() {
    let site = Site::of(1).await;
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let (id, request) = (deployed.workload.id, upgrade(json!({ "version": "v2" })));
    let preview = workload::preview_operation(&site.engines.engine, &admin(), id, &Precondition::Any, &request).await;
    let preview = preview.unwrap();
    assert_eq!((preview.plan.kind, preview.plan.steps.len(), preview.placed.len()), (OperationKind::Upgrade, 1, 0));
    let mut reader = site.engines.store().read().await.unwrap();
    assert_eq!(reader.workload(id).await.unwrap(), deployed.workload);
    assert_eq!(reader.newest_operation(id).await.unwrap().unwrap().id, deployed.operation.id);
    assert_eq!(site.engines.recorded(AuditAction::OperationStart).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_operation_names_the_field_and_the_next_action() {
    let site = Site::of(1).await;
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let id = deployed.workload.id;
    let refused = async |request| start(&site, id, request).await.expect_err("it is refused");
    let missing = refused(upgrade(json!({}))).await;
    assert_eq!((missing.code(), missing.reasons()[0].field.as_str()), (Code::FieldInvalid, "parameters.version"));
    let own = refused(OperationRequest::of(OperationKind::Decommission)).await;
    assert_eq!((own.code(), own.field().as_deref()), (Code::FieldInvalid, Some("kind")));
    assert!(own.next().unwrap().contains("gpuaas workload decommission"));
    let unknown = refused(OperationRequest::of(OperationKind::Restore)).await;
    assert_eq!(unknown.code(), Code::StateConflict);
    assert!(unknown.next().unwrap().contains("gpuaas app show kit"));
    let ended = site.decommission_and_wait(id, |_| vec![milestone("removed")]).await;
    assert_eq!(ended.workload.lifecycle, Lifecycle::Decommissioned);
    assert_eq!(refused(upgrade(json!({ "version": "v2" }))).await.code(), Code::StateConflict);
}
