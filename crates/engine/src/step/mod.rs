//! The three kinds of step, one file each: what begins an attempt and what its end is. Attempts run beside their driver.

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
    driver::{Driver, Ended},
    rows::OperationRows,
};
use futures::future::BoxFuture;
use gpuaas_crash_points::{self as crash_points, Point, StepKind};
use gpuaas_planner::StepAction;
use gpuaas_store::StepRecord;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AttemptEnd {
    /// With what it returned.
    Succeeded(Value),
    /// With why.
    Failed(TaskFailure),
    /// The agent died in the middle: nobody knows how far it came. The next attempt observes first.
    Interrupted,
}

impl Driver {
    /// The future of an attempt whose beginning is recorded.
    pub(crate) fn attempt(
        &self,
        rows: &OperationRows,
        step: &StepRecord,
        task: Option<Outgoing>,
    ) -> BoxFuture<'static, Ended> {
        let (id, attempt) = (step.id, step.attempts);
        let end: BoxFuture<'static, AttemptEnd> = match (&step.spec.action, task) {
            (StepAction::NodeTask { .. }, Some(task)) => {
                node_task::run(self.engine.clone(), task, self.progress_of(id), self.cancelled.clone())
            }
            (StepAction::NodeTask { .. }, None) => node_task::missing(),
            (StepAction::ClusterCall { call }, _) => {
                let cancelled = self.cancelled.clone();
                cluster_call::run(self.engine.clone(), rows, step, call.clone(), self.progress_of(id), cancelled)
            }
            (StepAction::Record { record }, _) => {
                let (progress, cancelled) = (self.progress_of(id), self.cancelled.clone());
                record::run(self.engine.clone(), rows, step, *record, progress, cancelled)
            }
        };
        let kind = kind_of(&step.spec.action);
        let end = self.beside(Box::pin(async move {
            crash_points::reach(Point::StepBegun(kind));
            let end = end.await;
            crash_points::reach(Point::StepAnswered(kind));
            end
        }));
        Box::pin(async move { (id, attempt, end.await) })
    }

    /// Runs an attempt beside this driver and for as long as it lives. Inside it, an attempt that reads the store would hold what the driver
    /// waits for while the driver does not let it go on.
    fn beside(&self, attempt: BoxFuture<'static, AttemptEnd>) -> BoxFuture<'static, AttemptEnd> {
        let (ended, end) = oneshot::channel();
        let gone = self.gone.clone();
        let work = async move {
            tokio::select! {
                biased;
                () = gone.cancelled() => {}
                // A driver that is gone knows from rows what it began.
                end = attempt => drop(ended.send(end)),
            }
        };
        self.engine.ports().runtime.spawn("attempt", Box::pin(work));
        Box::pin(async move {
            end.await.unwrap_or_else(|_| AttemptEnd::Failed(TaskFailure::new(Code::Internal, "the attempt panicked")))
        })
    }
}

/// Its kind, as crash points name it.
pub(crate) const fn kind_of(action: &StepAction) -> StepKind {
    match action {
        StepAction::NodeTask { .. } => StepKind::NodeTask,
        StepAction::ClusterCall { .. } => StepKind::ClusterCall,
        StepAction::Record { .. } => StepKind::Record,
    }
}
