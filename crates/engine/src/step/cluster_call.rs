//! A step that calls the app's cluster through a tunnel.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::Code;
use gpuaas_store::StepRecord;
use gpuaas_wire::task::TaskFailure;
use tokio_util::sync::CancellationToken;

use super::AttemptEnd;
use crate::{
    effects::{CallContext, ProgressSink},
    engine::Engine,
    rows::OperationRows,
};

/// Makes the call; drops it at the attempt's deadline, or when the operation is cancelled.
pub(super) fn run(
    engine: Arc<Engine>,
    rows: &OperationRows,
    step: &StepRecord,
    call: String,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, AttemptEnd> {
    let now = engine.ports().clock.now();
    let deadline = step.deadline_at.unwrap_or(now);
    let app = rows.of.workload.app.clone();
    let context =
        CallContext { member: step.spec.member, progress, ..CallContext::of(&engine, rows.of.view(), deadline) };
    Box::pin(async move {
        let Some(entry) = engine.catalog().app(&app) else {
            return AttemptEnd::Failed(TaskFailure::new(
                Code::Internal,
                format!("this control plane has no app {app}"),
            ));
        };
        let timeout = engine.ports().runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            result = entry.effects.call(&call, context) => match result {
                Ok(value) => AttemptEnd::Succeeded(value),
                Err(failure) => AttemptEnd::Failed(failure),
            },
            () = cancelled.cancelled() => AttemptEnd::Failed(TaskFailure::new(Code::TaskCancelled, format!("{call} was cancelled"))),
            () = timeout => AttemptEnd::Failed(TaskFailure::new(Code::TaskTimedOut, format!("{call} did not end by its deadline"))),
        }
    })
}
