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
        Box::pin(async move { (id, attempt, end.await) })
    }
}
