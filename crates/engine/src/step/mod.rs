//! The three kinds of step, one file each, and the wait for a node: how an attempt runs and ends. Attempts run in tasks separate from their driver.

mod await_node;
mod cluster_call;
mod cursor;
mod node_task;
mod record;

use futures::future::BoxFuture;
use gpuaas_crash_points::{self as crash_points, Point, StepKind};
use gpuaas_model::Code;
use gpuaas_planner::StepAction;
use gpuaas_store::StepRecord;
use tokio::sync::oneshot;
use tracing::Instrument as _;

pub(crate) use cursor::{Begun, StepCursor};
pub(crate) use node_task::continue_node_task;

use crate::{
    dispatch::{Outgoing, TaskEnd},
    driver::{Driver, EndedAttempt},
    rows::OperationRows,
};

impl Driver {
    /// Returns the future of an attempt whose start is recorded.
    pub(crate) fn attempt(
        &self,
        rows: &OperationRows,
        step: &StepRecord,
        task: Option<Outgoing>,
    ) -> BoxFuture<'static, EndedAttempt> {
        let (id, attempt) = (step.id, step.attempts);
        let end: BoxFuture<'static, TaskEnd> = match (&step.spec.action, task) {
            (StepAction::NodeTask { .. }, Some(task)) => {
                node_task::run(self.engine.clone(), task, self.progress_sink(id), self.cancelled.clone())
            }
            (StepAction::NodeTask { .. }, None) => node_task::missing(),
            (StepAction::ClusterCall { call }, _) => {
                let cancelled = self.cancelled.clone();
                cluster_call::run(self.engine.clone(), rows, step, call, self.progress_sink(id), cancelled)
            }
            (StepAction::Record { record }, _) => {
                let (progress, cancelled) = (self.progress_sink(id), self.cancelled.clone());
                record::run(self.engine.clone(), rows, step, *record, progress, cancelled)
            }
        };
        let kind = kind_of(&step.spec.action);
        let span = tracing::info_span!("step", step = %step.spec.key, attempt);
        let attempted = async move {
            crash_points::reach(Point::StepBegun(kind));
            let end = end.await;
            crash_points::reach(Point::StepAnswered(kind));
            end
        };
        let end = self.spawn_attempt(Box::pin(attempted.instrument(span)));
        Box::pin(async move { EndedAttempt { step: id, attempt, end: end.await } })
    }

    /// Spawns an attempt as a separate task that ends with this driver. If the driver polled the attempt itself, an attempt that reads the
    /// store could hold a resource for which the driver waits, and both would stop.
    fn spawn_attempt(&self, attempt: BoxFuture<'static, TaskEnd>) -> BoxFuture<'static, TaskEnd> {
        let (ended, end) = oneshot::channel();
        let dropped = self.dropped.clone();
        let work = async move {
            tokio::select! {
                biased;
                () = dropped.cancelled() => {}
                // If the driver no longer exists, the next one finds the attempt in the rows.
                end = attempt => drop(ended.send(end)),
            }
        };
        self.engine.ports().runtime.spawn("attempt", Box::pin(work));
        Box::pin(async move { end.await.unwrap_or_else(|_| TaskEnd::failed(Code::Internal, "the attempt panicked")) })
    }
}

/// The kind of a step, as crash points name it.
pub(crate) const fn kind_of(action: &StepAction) -> StepKind {
    match action {
        StepAction::NodeTask { .. } => StepKind::NodeTask,
        StepAction::ClusterCall { .. } => StepKind::ClusterCall,
        StepAction::Record { .. } => StepKind::Record,
    }
}
