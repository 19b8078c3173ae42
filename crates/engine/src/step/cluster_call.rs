//! A step that calls the app's cluster through a tunnel.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::Code;
use gpuaas_planner::{ClusterCall, RenderError};
use gpuaas_store::StepRecord;
use gpuaas_wire::task::TaskFailure;
use tokio_util::sync::CancellationToken;

use crate::{
    dispatch::TaskEnd,
    effects::{AppEffects, CallContext, ProgressSink},
    engine::Engine,
    rows::OperationRows,
};

/// Makes the call; drops it at the attempt's deadline, or when the operation is cancelled.
pub(super) fn run(
    engine: Arc<Engine>,
    rows: &OperationRows,
    step: &StepRecord,
    call: &str,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, TaskEnd> {
    let deadline = step.deadline_at.unwrap_or_else(|| engine.ports().clock.now());
    let (effects, call) = match rendered(&engine, rows, step, call) {
        Ok(rendered) => rendered,
        Err(failure) => return Box::pin(async { TaskEnd::Failed(failure) }),
    };
    let context = CallContext { progress, ..CallContext::of(&engine, rows.of.view(), deadline) };
    Box::pin(async move {
        let name = call.call.clone();
        let timeout = engine.ports().runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            result = effects.call(call, context) => result.map_or_else(TaskEnd::Failed, TaskEnd::Succeeded),
            () = cancelled.cancelled() => TaskEnd::failed(Code::TaskCancelled, format!("{name} was cancelled")),
            () = timeout => TaskEnd::failed(Code::TaskTimedOut, format!("{name} did not end by its deadline")),
        }
    })
}

/// Renders the call's parameters for this attempt.
fn rendered(
    engine: &Engine,
    rows: &OperationRows,
    step: &StepRecord,
    call: &str,
) -> Result<(Arc<dyn AppEffects>, ClusterCall), TaskFailure> {
    let slug = &rows.of.workload.app;
    let entry = engine
        .catalog()
        .app(slug)
        .ok_or_else(|| TaskFailure::new(Code::Internal, format!("this control plane has no app {slug}")))?;
    let rendered = entry.app.render(&step.spec, &rows.operation.request(), &rows.of.view());
    let parameters = rendered.map_err(|error| {
        let code = match error {
            RenderError::UnknownCall { .. } => Code::TaskUnknown,
            RenderError::Missing { .. } => Code::Internal,
        };
        TaskFailure::new(code, error.to_string())
    })?;
    Ok((entry.effects.clone(), ClusterCall { call: call.to_owned(), parameters }))
}
