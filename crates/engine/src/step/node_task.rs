//! A step that is a signed task on a node.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::Code;
use gpuaas_store::{StepRecord, StoreError};
use gpuaas_wire::task::{TaskFailure, TaskOutcome};
use tokio_util::sync::CancellationToken;

use super::AttemptEnd;
use crate::{
    dispatch::{Outgoing, TaskEnd},
    effects::ProgressSink,
    engine::Engine,
};

/// Sends the recorded task and follows it.
pub(super) fn run(
    engine: Arc<Engine>,
    outgoing: Outgoing,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, AttemptEnd> {
    Box::pin(async move {
        match engine.follow_task(outgoing, &progress, &cancelled).await {
            TaskEnd::Outcome(TaskOutcome::Succeeded { result }) => AttemptEnd::Succeeded(result),
            TaskEnd::Outcome(TaskOutcome::Failed { failure }) if failure.code == Code::TaskInterrupted => {
                AttemptEnd::Interrupted
            }
            TaskEnd::Outcome(TaskOutcome::Failed { failure }) => AttemptEnd::Failed(failure),
            TaskEnd::Interrupted => AttemptEnd::Interrupted,
        }
    })
}

/// Fails a running node-task step without a task row. Both are written in one transaction, so this is a defect.
pub(super) fn missing() -> BoxFuture<'static, AttemptEnd> {
    let failure = TaskFailure::new(Code::Internal, "the step is running, but its task was not recorded");
    Box::pin(async move { AttemptEnd::Failed(failure) })
}

/// The task of an attempt that an earlier driver began.
pub(crate) async fn continue_node_task(engine: &Engine, step: &StepRecord) -> Result<Option<Outgoing>, StoreError> {
    match step.task {
        Some(task) => engine.store().read().await?.task(task).await.map(Outgoing::resumed).map(Some),
        None => Ok(None),
    }
}
