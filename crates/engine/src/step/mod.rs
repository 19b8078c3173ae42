//! The three kinds of step, one file each: what begins an attempt and what its end is.

mod cluster_call;
mod node_task;
mod record;

use gpuaas_wire::task::TaskFailure;
use serde_json::Value;

pub(crate) use node_task::continue_node_task;

use crate::{
    driver::{Driver, Ended},
    rows::OperationRows,
};
use futures::future::BoxFuture;
use gpuaas_crash_points::{self as crash_points, Point, StepKind};
use gpuaas_planner::StepAction;
use gpuaas_store::{StepRecord, TaskRecord};

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
        task: Option<TaskRecord>,
    ) -> BoxFuture<'static, Ended> {
        let (id, attempt) = (step.id, step.attempts);
        let end: BoxFuture<'static, AttemptEnd> = match (&step.spec.action, task) {
            (StepAction::NodeTask { .. }, Some(task)) => {
                node_task::run(self.engine.clone(), task, self.progress_of(id))
            }
            (StepAction::NodeTask { .. }, None) => node_task::missing(),
            (StepAction::ClusterCall { call }, _) => {
                let cancelled = self.cancelled.clone();
                cluster_call::run(self.engine.clone(), rows, step, call.clone(), self.progress_of(id), cancelled)
            }
            (StepAction::Record { record }, _) => record::run(self.engine.clone(), rows, *record),
        };
        let kind = kind_of(&step.spec.action);
        Box::pin(async move {
            crash_points::reach(Point::StepBegun(kind));
            let end = end.await;
            crash_points::reach(Point::StepAnswered(kind));
            (id, attempt, end)
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
