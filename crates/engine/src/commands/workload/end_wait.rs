//! Ends an operation that only waits for unreachable nodes, so that a person can give these nodes up at once.

use gpuaas_model::{
    AuditAction, EventKind, MemberId, MemberState, OperationKind, OperationState, Permission, StepId, StepState,
    Timestamp,
};
use gpuaas_planner::{RecordKind, StepAction, schedule};
use gpuaas_store::{StepRecord, Tx};
use serde_json::json;

use crate::{
    caller::Caller,
    commands::audit_workload,
    engine::Engine,
    error::CommandError,
    record::EventScope,
    rows::{OperationRows, WorkloadRows},
    step::StepCursor,
};

/// Ends the workload's newest operation as cancelled if it is of this kind, only waits for nodes, and has no other present member than
/// `targets`, those of the operation that the caller requests: nothing would explain another member that it leaves half removed. Does nothing
/// to any other open operation; the caller's request is then refused as usual.
///
/// Safe although its driver runs: the driver only has attempts that wait, and these record nothing once their steps have ended.
pub(super) async fn end_wait(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    workload: &WorkloadRows,
    (kind, targets): (OperationKind, &[MemberId]),
) -> Result<(), CommandError> {
    let newest = tx.newest_operation(workload.workload.id).await?;
    let Some(open) = newest.filter(|operation| !operation.state.is_final() && operation.kind == kind) else {
        return Ok(());
    };
    let is_removed = |id: &MemberId| workload.members.iter().any(|of| of.id == *id && of.state == MemberState::Removed);
    if !open.targets.iter().all(|target| targets.contains(target) || is_removed(target)) {
        return Ok(());
    }
    let now = engine.ports().clock.now();
    let mut rows = OperationRows::load(tx, open.id).await?;
    if !only_waits(&rows, now) {
        return Ok(());
    }
    caller.require(Permission::OperationsControl)?;
    tx.request_cancel(open.id).await?;
    rows.operation = tx.operation(open.id).await?;
    let events = EventScope { project: open.project, correlation: caller.correlation };
    events.operation(tx, EventKind::OperationCancelRequested, &rows.operation).await?;
    let left: Vec<StepId> = rows.steps.iter().filter(|step| !step.state.is_final()).map(|step| step.id).collect();
    for id in left {
        let Some(mut step) = StepCursor::find(engine, tx, &mut rows, |row| row.id == id) else { continue };
        match step.row().state {
            StepState::Running => step.cancel().await?,
            StepState::Pending
            | StepState::Backoff
            | StepState::Succeeded
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => step.skip(now).await?,
        }
    }
    let before = rows.operation.state;
    rows.operation.state = OperationState::Cancelled;
    rows.operation.ended_at = Some(now);
    tx.update_operation(&rows.operation, before).await?;
    events.operation(tx, EventKind::OperationEnded, &rows.operation).await?;
    let metadata = json!({ "operation": open.id });
    audit_workload(tx, caller, AuditAction::OperationCancel, &workload.workload, metadata).await?;
    Ok(())
}

/// Returns true if the operation has no step to begin, now or later by itself, and every running one waits for a node.
fn only_waits(rows: &OperationRows, now: Timestamp) -> bool {
    let next = schedule(&rows.progress(), rows.operation.cancel_requested, now);
    let is_idle = next.run.is_empty() && next.skip.is_empty() && next.wake_at.is_none() && next.ending.is_none();
    let waits = |step: &StepRecord| matches!(step.spec.action, StepAction::Record { record: RecordKind::AwaitNode });
    is_idle && rows.running().all(waits)
}
