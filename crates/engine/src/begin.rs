//! Begins attempts: one transaction records that they are about to run, with the signed envelope of each node task; they run only after its
//! commit.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture, stream};
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{EventKind, NodeId, OperationState, StepId, StepState, TaskId};
use gpuaas_planner::{Schedule, StepAction};
use gpuaas_store::{LeaseRecord, StepRecord, Tx};
use gpuaas_wire::bounds::one_line;
use sync_wrapper::SyncFuture;

use crate::{
    dispatch::TaskEnd,
    driver::{Driver, EndedAttempt},
    effects::ProgressSink,
    error::EngineError,
    port::Nodes,
    record::EventScope,
    rows::OperationRows,
    step::{Begun, StepCursor, continue_node_task},
};

/// Maximum length of a progress text kept as a step's detail, in bytes.
const DETAIL_BYTES_MAX: usize = 512;
/// Maximum number of concurrent cancellation requests to nodes.
const CONCURRENT_CANCELLATIONS_MAX: usize = 32;

impl Driver {
    /// Skips and begins the steps that the schedule names, in one transaction, then runs the begun attempts. `is_ending` if the schedule was
    /// made for an operation that begins no further step.
    pub(crate) async fn begin(
        &mut self,
        lease: &LeaseRecord,
        next: &Schedule,
        is_ending: bool,
    ) -> Result<(), EngineError> {
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        if rows.operation.is_ending() && !is_ending {
            // Requested after the schedule was computed: none of its steps begins.
            return Ok(());
        }
        let events = EventScope::of(&rows.operation);
        let now = self.engine.ports().clock.now();
        if rows.operation.state == OperationState::Queued {
            rows.operation.started_at = Some(now);
        }
        let before = rows.operation.state;
        rows.operation.state = OperationState::Running;
        tx.update_operation(&rows.operation, before).await?;
        if before == OperationState::Queued {
            events.operation(&mut tx, EventKind::OperationStarted, &rows.operation).await?;
        }
        for key in &next.skip {
            if let Some(mut step) = StepCursor::find(&self.engine, &mut tx, &mut rows, |row| row.spec.key == *key) {
                step.skip(now).await?;
            }
        }
        let mut begun = Vec::new();
        for key in &next.run {
            if let Some(mut step) = StepCursor::find(&self.engine, &mut tx, &mut rows, |row| row.spec.key == *key) {
                begun.push(step.begin(now).await?);
            }
        }
        rows.write_workload(&mut tx, &events).await?;
        tx.commit().await?;
        for attempt in begun {
            let future: BoxFuture<'static, EndedAttempt> = match attempt {
                Begun::Run(step, task) => {
                    self.in_flight.insert(step.id);
                    self.attempt(&rows, &step, task.map(|task| *task))
                }
                Begun::Ended(step, failure) => {
                    self.in_flight.insert(step.id);
                    let end = TaskEnd::Failed(failure);
                    Box::pin(async move { EndedAttempt { step: step.id, attempt: step.attempts, end } })
                }
            };
            self.attempts.push(SyncFuture::new(future));
        }
        Ok(())
    }

    /// Continues an attempt that an earlier driver began.
    pub(crate) async fn continue_attempt(&mut self, rows: &OperationRows, step: StepRecord) -> Result<(), EngineError> {
        tracing::info!(operation = %self.id, step = %step.spec.key, "continuing an attempt that another driver began");
        let task = continue_node_task(&self.engine, &step).await?;
        self.in_flight.insert(step.id);
        self.attempts.push(SyncFuture::new(self.attempt(rows, &step, task)));
        Ok(())
    }

    /// Asks every running node task to end.
    pub(crate) fn cancel_running(&self, rows: &OperationRows) -> BoxFuture<'static, ()> {
        let task_of = |step: &StepRecord| match (&step.spec.action, step.task) {
            (StepAction::NodeTask { node, .. }, Some(task)) => Some((*node, task)),
            _ => None,
        };
        Box::pin(cancel(self.engine.nodes().clone(), rows.running().filter_map(task_of).collect()))
    }

    /// Fails if another holder took the lease; this driver's writes are void then.
    pub(crate) async fn check_lease(&self, tx: &mut Tx, lease: &LeaseRecord) -> Result<(), EngineError> {
        let is_held = tx.holds_lease(&self.lease_name(), self.engine.replica(), lease.fence).await?;
        if is_held || bugs::on(Bug::LeaseNotChecked) { Ok(()) } else { Err(EngineError::LeaseLost) }
    }

    /// Returns a sink for the progress texts of one step. It never makes the attempt wait.
    pub(crate) fn progress_sink(&self, step: StepId) -> ProgressSink {
        let progress = self.progress_in.clone();
        Arc::new(move |text| {
            // If the queue is full, this text is dropped; earlier ones wait to be recorded.
            let _ = progress.try_send((step, text));
        })
    }

    /// Stores a progress text as the step's detail.
    pub(crate) async fn record_progress(&self, step: StepId, text: String) {
        if let Err(error) = self.write_progress(step, &one_line(text, DETAIL_BYTES_MAX)).await {
            tracing::debug!(%step, %error, "a progress text could not be recorded");
        }
    }

    async fn write_progress(&self, step: StepId, text: &str) -> Result<(), EngineError> {
        let mut tx = self.engine.store().begin().await?;
        let mut row = tx.step(step).await?;
        if row.state != StepState::Running || row.detail.as_deref() == Some(text) {
            return Ok(());
        }
        row.detail = Some(text.to_owned());
        let operation = tx.operation(self.id).await?;
        tx.update_step(&row, (row.state, row.attempts)).await?;
        EventScope::of(&operation).step(&mut tx, &row, operation.workload).await?;
        Ok(tx.commit().await?)
    }
}

/// Sends cancellations, [`CONCURRENT_CANCELLATIONS_MAX`] at a time, so that a node that does not answer delays few others.
async fn cancel(nodes: Arc<dyn Nodes>, tasks: Vec<(NodeId, TaskId)>) {
    let all_sent = stream::iter(tasks).for_each_concurrent(CONCURRENT_CANCELLATIONS_MAX, |(node, task)| {
        let nodes = nodes.clone();
        async move { nodes.cancel(node, task).await }
    });
    all_sent.await;
}
