//! Writes the status of workloads: lifecycle, phase, health, recovery, progress and fault. `planner::status` decides it; no other code of
//! the engine changes one of these fields of a row.

use gpuaas_model::{EventKind, WorkloadId};
use gpuaas_planner::{
    StepProgress,
    status::{FaultChange, OperationView, fault, status},
};
use gpuaas_store::{Tx, WorkloadRecord};

use crate::{
    error::EngineError,
    record::EventScope,
    rows::{OperationRows, WorkloadRows},
};

impl WorkloadRows {
    /// Forgets the fault that explained the workload: a new operation is accepted. In memory only.
    pub(crate) fn clear_fault(&mut self) {
        self.workload.fault = None;
    }

    /// Forgets what the workload's controller reported: the workload's in memory only, that of its members also in their rows.
    pub(crate) async fn end_report(&mut self, tx: &mut Tx, events: &EventScope) -> Result<(), EngineError> {
        self.workload.reported = None;
        for member in self.members.iter_mut().filter(|member| member.reported.is_some()) {
            member.forget_report();
            *member = tx.update_member(member, member.state.name()).await?;
            events.member(tx, member).await?;
        }
        Ok(())
    }

    /// Derives the status from the members and an operation, and writes the row, with an event, if it differs from `stored`. `is_quiet` if
    /// the platform's own reconciliation is the reason.
    async fn write(
        &mut self,
        tx: &mut Tx,
        events: &EventScope,
        operation: Option<&OperationView<'_>>,
        stored: &WorkloadRecord,
        is_quiet: bool,
    ) -> Result<(), EngineError> {
        let generation = self.workload.generation;
        if self.workload.reported.as_ref().is_some_and(|reported| !reported.is_current(generation)) {
            self.end_report(tx, events).await?;
        }
        let fault = self.workload.fault.clone();
        let derived = status(&self.workload.status(), &self.view(), operation, fault.as_ref());
        let derived = match &self.workload.reported {
            Some(reported) => reported.shown(derived, operation),
            None => derived,
        };
        self.workload.set_status(&self.workload.drift.shown(derived));
        if *stored != self.workload {
            self.workload.quiet = if is_quiet { self.workload.quiet_after(stored) } else { None };
            self.workload = tx.update_workload(&self.workload).await?;
            events.workload(tx, EventKind::WorkloadChanged, &self.workload).await?;
        }
        Ok(())
    }
}

impl OperationRows {
    /// Replaces the fault that explains the workload. In memory only.
    pub(crate) fn change_fault(&mut self, change: FaultChange) {
        let steps = self.progress();
        let before = self.of.workload.fault.take();
        self.of.workload.fault = fault(before, change, &self.of.view(), &self.operation_view(&steps));
    }

    /// Writes the workload with its present status, with an event if anything changed since it was loaded.
    pub(crate) async fn write_workload(&mut self, tx: &mut Tx, events: &EventScope) -> Result<(), EngineError> {
        let stored = tx.workload(self.of.workload.id).await?;
        self.write(tx, events, &stored, false).await
    }

    async fn write(
        &mut self,
        tx: &mut Tx,
        events: &EventScope,
        stored: &WorkloadRecord,
        is_quiet: bool,
    ) -> Result<(), EngineError> {
        let steps = self.progress();
        let operation = self.operation_view(&steps);
        let is_quiet = is_quiet || self.operation.by_platform.is_some();
        self.of.write(tx, events, Some(&operation), stored, is_quiet).await
    }

    fn operation_view<'a>(&self, steps: &'a [StepProgress]) -> OperationView<'a> {
        OperationView { kind: self.operation.kind, state: self.operation.state, steps }
    }
}

/// Derives a workload's status again from its members and its newest operation.
pub(crate) async fn refresh_workload(
    tx: &mut Tx,
    events: &EventScope,
    workload: WorkloadId,
) -> Result<(), EngineError> {
    // Boxed: many commands end with this, and would keep its future within theirs.
    Box::pin(derive(tx, events, workload, |_| {}, false)).await
}

/// Changes a workload in the course of a reconciliation by the platform, and derives its status again. An `If-Match` with an earlier revision
/// still matches afterwards, unless the change affects more than a reconciliation does ([`QuietRevisions`](gpuaas_store::QuietRevisions)).
pub(crate) async fn change_quietly(
    tx: &mut Tx,
    events: &EventScope,
    workload: WorkloadId,
    change: impl FnOnce(&mut WorkloadRecord) + Send,
) -> Result<(), EngineError> {
    Box::pin(derive(tx, events, workload, change, true)).await
}

async fn derive(
    tx: &mut Tx,
    events: &EventScope,
    workload: WorkloadId,
    change: impl FnOnce(&mut WorkloadRecord) + Send,
    is_quiet: bool,
) -> Result<(), EngineError> {
    match tx.newest_operation(workload).await? {
        Some(operation) => {
            let mut rows = OperationRows::load(tx, operation.id).await?;
            let stored = rows.of.workload.clone();
            change(&mut rows.of.workload);
            rows.write(tx, events, &stored, is_quiet).await
        }
        None => {
            let mut rows = WorkloadRows::load(tx, workload).await?;
            let stored = rows.workload.clone();
            change(&mut rows.workload);
            rows.write(tx, events, None, &stored, is_quiet).await
        }
    }
}
