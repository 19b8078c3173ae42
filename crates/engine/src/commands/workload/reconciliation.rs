//! The reconciliation that the platform starts by itself when a workload has drifted. It does not change the desired state, so it raises no
//! generation. It does not start while a person can still resume an operation.

use gpuaas_model::{AuditAction, CorrelationId, Lifecycle, OperationId, OperationState, OwnActor, WorkloadId};
use gpuaas_planner::drift::NextReconciliation;
use gpuaas_store::{ByPlatform, NewAudit, OperationRecord, WorkloadRecord};
use serde_json::json;

use super::{draft::draft_reconciliation, insert, placed_members};
use crate::{
    engine::Engine,
    error::{CommandError, EngineError},
    record::EventScope,
    rows::WorkloadRows,
    workload_status::change_quietly,
};

/// Returns true if the platform may reconcile this workload now; `newest` is its newest operation.
pub(crate) fn may_start(workload: &WorkloadRecord, newest: Option<&OperationRecord>) -> bool {
    let leaves_nothing = |operation: &OperationRecord| {
        operation.state.is_final() && (operation.state == OperationState::Succeeded || operation.by_platform.is_some())
    };
    workload.lifecycle == Lifecycle::Running && newest.is_none_or(leaves_nothing)
}

/// Starts a reconciliation if one is due, in one transaction with its attempt, event and audit record. Returns its id.
pub(crate) async fn start(engine: &Engine, id: WorkloadId) -> Result<Option<OperationId>, CommandError> {
    let (ports, mut tx) = (engine.ports(), engine.store().begin().await?);
    let rows = WorkloadRows::load(&mut tx, id).await?;
    let newest = tx.newest_operation(id).await?;
    let (now, drift) = (ports.clock.now(), &rows.workload.drift);
    let is_due = matches!(drift.next(&rows.workload.name, now), NextReconciliation::Due(at) if at <= now);
    if !is_due || !may_start(&rows.workload, newest.as_ref()) {
        return Ok(None);
    }
    let reason = drift.summary();
    let draft = draft_reconciliation(engine, rows)?;
    let workload = &draft.rows.workload;
    let operation_id = OperationId::generate_after(newest.map(|newest| newest.id), &*ports.clock, &*ports.entropy);
    let by = (OwnActor::ControlPlane.to_string(), CorrelationId::generate(&*ports.clock, &*ports.entropy));
    let operation = OperationRecord {
        parameters: draft.request.parameters.clone(),
        targets: draft.targets,
        by_platform: Some(ByPlatform { reason: reason.clone(), yields: false }),
        ..OperationRecord::queued(operation_id, workload, draft.request.kind, by, now)
    };
    let mut metadata = json!(draft.request);
    metadata["operation"] = json!(operation.id);
    metadata["members"] = json!(placed_members(&draft.rows, &operation.targets));
    metadata["reason"] = json!(reason);
    let (_, superseded) = insert(engine, &mut tx, &operation, draft.plan).await?;
    if let Some(superseded) = superseded {
        metadata["supersedes"] = json!(superseded);
    }
    change_quietly(&mut tx, &EventScope::of(&operation), id, |workload| {
        workload.fault = None;
        workload.drift = workload.drift.attempted(now);
    })
    .await?;
    let target = format!("workload/{}", workload.name);
    let record = NewAudit::of_own(OwnActor::ControlPlane, AuditAction::OperationStart, target, metadata);
    let (project, correlation) = (Some(operation.project), Some(operation.correlation));
    tx.append_audit(&NewAudit { project, workload: Some(id), correlation, ..record }).await?;
    tx.commit().await?;
    Ok(Some(operation.id))
}

/// Counts an attempt that could not be planned: it counts like the others, so that it is not repeated without end.
pub(crate) async fn count_attempt(engine: &Engine, id: WorkloadId) -> Result<(), EngineError> {
    let (ports, mut tx) = (engine.ports(), engine.store().begin().await?);
    let project = tx.workload(id).await?.project;
    let correlation = CorrelationId::generate(&*ports.clock, &*ports.entropy);
    let (now, events) = (ports.clock.now(), EventScope { project, correlation });
    change_quietly(&mut tx, &events, id, |workload| workload.drift = workload.drift.attempted(now)).await?;
    Ok(tx.commit().await?)
}
