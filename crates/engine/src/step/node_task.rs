//! A step that is a signed task on a node.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::Code;
use gpuaas_store::StepRecord;
use tokio_util::sync::CancellationToken;

use crate::{
    dispatch::{Outgoing, TaskEnd},
    effects::ProgressSink,
    engine::Engine,
    error::EngineError,
};

/// Sends the recorded task and follows it.
pub(super) fn run(
    engine: Arc<Engine>,
    outgoing: Outgoing,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, TaskEnd> {
    Box::pin(async move {
        match engine.follow_task(outgoing, &progress, &cancelled).await {
            TaskEnd::Failed(failure) if failure.code == Code::TaskInterrupted => TaskEnd::Interrupted,
            end => end,
        }
    })
}

/// Fails a running node-task step without a task row. Both are written in one transaction, so this is a defect.
pub(super) fn missing() -> BoxFuture<'static, TaskEnd> {
    Box::pin(async { TaskEnd::failed(Code::Internal, "the step is running, but its task was not recorded") })
}

/// The task of an attempt that an earlier driver began.
pub(crate) async fn continue_node_task(engine: &Engine, step: &StepRecord) -> Result<Option<Outgoing>, EngineError> {
    match step.task {
        Some(task) => Ok(Some(Outgoing::resumed(engine.store().read().await?.task(task).await?))),
        None => Ok(None),
    }
}
