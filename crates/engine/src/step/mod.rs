//! The three kinds of step, one file each: how an attempt runs and ends. Attempts run in tasks separate from their driver.

mod cluster_call;
mod node_task;
mod record;

use gpuaas_model::Code;
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) use node_task::continue_node_task;

use crate::{
    dispatch::Outgoing,
    driver::{Driver, EndedAttempt},
    rows::OperationRows,
};
use futures::future::BoxFuture;
use gpuaas_crash_points::{self as crash_points, Point, StepKind};
use gpuaas_planner::StepAction;
use gpuaas_store::StepRecord;

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AttemptEnd {
    /// Succeeded, with its result.
    Succeeded(Value),
    /// Failed, with its failure.
    Failed(TaskFailure),
    /// The agent died during the attempt, so its progress is unknown. The next attempt checks first.
    Interrupted,
}

impl Driver {
    /// Returns the future of an attempt whose start is recorded.
    pub(crate) fn attempt(
        &self,
        rows: &OperationRows,
        step: &StepRecord,
        task: Option<Outgoing>,
    ) -> BoxFuture<'static, EndedAttempt> {
        let (id, attempt) = (step.id, step.attempts);
        let end: BoxFuture<'static, AttemptEnd> = match (&step.spec.action, task) {
            (StepAction::NodeTask { .. }, Some(task)) => {
                node_task::run(self.engine.clone(), task, self.progress_sink(id), self.cancelled.clone())
            }
            (StepAction::NodeTask { .. }, None) => node_task::missing(),
            (StepAction::ClusterCall { call }, _) => {
                let cancelled = self.cancelled.clone();
                cluster_call::run(self.engine.clone(), rows, step, call.clone(), self.progress_sink(id), cancelled)
            }
            (StepAction::Record { record }, _) => {
                let (progress, cancelled) = (self.progress_sink(id), self.cancelled.clone());
                record::run(self.engine.clone(), rows, step, *record, progress, cancelled)
            }
        };
        let kind = kind_of(&step.spec.action);
        let end = self.spawn_attempt(Box::pin(async move {
            crash_points::reach(Point::StepBegun(kind));
            let end = end.await;
            crash_points::reach(Point::StepAnswered(kind));
            end
        }));
        Box::pin(async move { (id, attempt, end.await) })
    }

    /// Spawns an attempt as a separate task that ends with this driver. If the driver polled the attempt itself, an attempt that reads the
    /// store could hold a resource for which the driver waits, and both would stop.
    fn spawn_attempt(&self, attempt: BoxFuture<'static, AttemptEnd>) -> BoxFuture<'static, AttemptEnd> {
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
        Box::pin(async move {
            end.await.unwrap_or_else(|_| AttemptEnd::Failed(TaskFailure::new(Code::Internal, "the attempt panicked")))
        })
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
