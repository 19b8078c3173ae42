//! Commands for running operations.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{AuditAction, EventKind, OperationId, Permission};
use gpuaas_planner::control;
use gpuaas_store::OperationRecord;
use serde_json::json;

use super::audit_workload;
use crate::{caller::Caller, engine::Engine, error::CommandError, record::EventScope};

/// Requests the cancellation of an operation: running tasks are cancelled, and pending steps never begin. Repeating the request changes
/// and records nothing.
pub async fn cancel(engine: &Engine, caller: &Caller, id: OperationId) -> Result<OperationRecord, CommandError> {
    let mut tx = engine.store().begin().await?;
    let operation = tx.operation(id).await?;
    caller.require_visible(operation.project, "operation", id)?;
    caller.require(Permission::OperationsControl)?;
    if operation.state.is_final() && !bugs::on(Bug::CancelAfterEnd) {
        return Err(control::has_ended(id, operation.state).into());
    }
    if operation.cancel_requested {
        return Ok(operation);
    }
    tx.request_cancel(id).await?;
    let workload = tx.workload(operation.workload).await?;
    audit_workload(&mut tx, caller, AuditAction::OperationCancel, &workload, json!({ "operation": id })).await?;
    let operation = tx.operation(id).await?;
    let events = EventScope { project: operation.project, correlation: caller.correlation };
    events.operation(&mut tx, EventKind::OperationCancelRequested, &operation).await?;
    tx.commit().await?;
    Ok(operation)
}
