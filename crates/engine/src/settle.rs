//! Records the result of an attempt in one transaction: the task's end, values from the result, the new states of member, step and
//! workload, events and audit records. Also ends the operation.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_crash_points::Point;
use gpuaas_model::{EventKind, OperationKind, OperationState, StepState};
use gpuaas_planner::{Ending, status::FaultChange};
use gpuaas_store::LeaseRecord;

use crate::{
    driver::{Driver, EndedAttempt},
    error::EngineError,
    members::fail_unfinished,
    observe::nodes_after,
    record::EventScope,
    rows::OperationRows,
    step::{StepCursor, kind_of},
};

impl Driver {
    /// Records how an attempt ended. Ignores an attempt that is no longer the present one.
    pub(crate) async fn settle(&self, lease: &LeaseRecord, ended: &EndedAttempt) -> Result<(), EngineError> {
        let EndedAttempt { step, attempt, end } = ended;
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        let Some(mut cursor) = StepCursor::find(&self.engine, &mut tx, &mut rows, |row| row.id == *step) else {
            return Ok(());
        };
        if cursor.row().state != StepState::Running || cursor.row().attempts != *attempt {
            return Ok(());
        }
        let kind = kind_of(&cursor.row().spec.action);
        cursor.settle(end).await?;
        let events = EventScope::of(&rows.operation);
        rows.write_workload(&mut tx, &events).await?;
        tx.commit().await?;
        gpuaas_crash_points::reach(Point::StepSettled(kind));
        Ok(())
    }

    /// Ends the operation.
    pub(crate) async fn finish(&self, lease: &LeaseRecord, ending: Ending) -> Result<(), EngineError> {
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        let events = EventScope::of(&rows.operation);
        let (before, now) = (rows.operation.state, self.engine.ports().clock.now());
        rows.operation.state = ending.state();
        rows.operation.ended_at = Some(now);
        tx.update_operation(&rows.operation, before).await?;
        rows.change_fault(FaultChange::Ended(ending));
        // Also if a step failed during the cancellation: then the operation needs attention. The members that a failed deployment has not
        // reached stay pending: the deployment is resumed as a whole.
        let is_over = rows.operation.cancel_requested || rows.operation.kind != OperationKind::Deploy;
        if is_over && !bugs::on(Bug::UnfinishedMembersLeft) {
            fail_unfinished(&mut tx, &mut rows, ending, now).await?;
        }
        let is_removed = ending == Ending::Succeeded && rows.operation.kind == OperationKind::Decommission;
        if ending == Ending::Succeeded {
            rows.of.workload.observed_generation = rows.operation.generation;
        }
        if is_removed {
            rows.of.workload.endpoints.clear();
        }
        rows.write_workload(&mut tx, &events).await?;
        if is_removed && !bugs::on(Bug::SecretsKept) {
            // The cluster that these secrets opened no longer exists.
            tx.delete_secrets_of(rows.of.workload.id).await?;
        }
        events.operation(&mut tx, EventKind::OperationEnded, &rows.operation).await?;
        tx.commit().await?;
        self.engine.observe_nodes(nodes_after(self.id, &rows.of.members)).await;
        debug_assert!(rows.operation.state.is_final() && rows.operation.state != OperationState::Failed);
        Ok(())
    }
}
