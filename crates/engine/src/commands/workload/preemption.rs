//! Lets a person's request preempt a reconciliation that the platform started by itself.
//!
//! Guarantees:
//! - The reconciliation yields only to a request that nothing else refuses.
//! - Its running steps end by themselves, so none is left half done; no other step begins.
//! - That it yields is recorded in its row, so it also yields if a replica dies meanwhile.
//! - At most one operation is open: the request is accepted only after the reconciliation has ended.

use std::time::Duration;

use futures::future::BoxFuture;
use gpuaas_model::{AuditAction, Code, Coded, EventKind, StepState, WorkloadId};
use gpuaas_store::{OperationRecord, StoreError};
use serde_json::json;

use crate::{
    caller::Caller, commands::audit_workload, engine::Engine, error::CommandError, operation_end::operation_ended,
    precondition::Precondition, record::EventScope, workload_status::change_quietly,
};

/// Longest wait of a request for the end of the running steps. Those of a reconciliation end within a second, unless a node or a cluster does
/// not answer.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A person's request to begin an operation on a workload.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) engine: &'a Engine,
    pub(super) caller: &'a Caller,
    pub(super) id: WorkloadId,
    pub(super) precondition: &'a Precondition,
}

impl<'a> Request<'a> {
    /// Attempts the request. If only an open operation of the platform makes it fail, lets this operation yield, waits up to [`WAIT_MAX`] for
    /// its end, and attempts the request again.
    pub(super) async fn preempting<T>(
        self,
        attempt: impl Fn(Self) -> BoxFuture<'a, Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let Self { engine, caller, id, .. } = self;
        let refused = match attempt(self).await {
            Err(refused) if refused.code() == Code::OperationInProgress && !caller.is_dry_run => refused,
            ended => return ended,
        };
        let newest = engine.store().read().await?.newest_operation(id).await?;
        match newest.filter(|operation| !operation.state.is_final()) {
            None => attempt(self).await,
            Some(open) if open.by_platform.is_none() => Err(refused),
            Some(open) => {
                Box::pin(request_yield(engine, caller, &open)).await?;
                let deadline = engine.ports().clock.now().plus(WAIT_MAX);
                if operation_ended(engine, open.id, deadline).await? {
                    attempt(self).await
                } else {
                    Err(still_running(engine, &open).await?)
                }
            }
        }
    }
}

/// Lets an operation of the platform yield. Recorded once, for the first caller that it yields to. It does not count as an attempt, or few
/// requests of people would end the platform's reconciliations for an hour.
async fn request_yield(engine: &Engine, caller: &Caller, open: &OperationRecord) -> Result<(), CommandError> {
    if open.is_ending() {
        return Ok(());
    }
    let mut tx = engine.store().begin().await?;
    if tx.operation(open.id).await?.is_ending() || !tx.request_yield(open.id).await? {
        return Ok(());
    }
    let workload = tx.workload(open.workload).await?;
    let metadata = json!({ "operation": open.id, "reason": "it yields to a request of this caller" });
    audit_workload(&mut tx, caller, AuditAction::OperationCancel, &workload, metadata).await?;
    let operation = tx.operation(open.id).await?;
    let events = EventScope { project: operation.project, correlation: caller.correlation };
    events.operation(&mut tx, EventKind::OperationCancelRequested, &operation).await?;
    let began = operation.created_at;
    change_quietly(&mut tx, &events, operation.workload, |workload| workload.drift = workload.drift.yielded(began))
        .await?;
    Ok(tx.commit().await?)
}

/// Returns the refusal of a request that has waited for too long.
async fn still_running(engine: &Engine, open: &OperationRecord) -> Result<CommandError, StoreError> {
    let steps = engine.store().read().await?.steps_of(open.id).await?;
    let running = steps.iter().filter(|step| step.state == StepState::Running);
    let running: Vec<String> = running
        .map(|step| match &step.detail {
            Some(detail) => format!("{} ({detail})", step.spec.key),
            None => step.spec.key.to_string(),
        })
        .collect();
    let detail = format!(
        "the platform's own operation {} ({}) yields to this request, but has not ended after {} s; running steps: {}",
        open.id,
        open.kind,
        WAIT_MAX.as_secs(),
        if running.is_empty() { "none".to_owned() } else { running.join(", ") }
    );
    let next = format!(
        "repeat the request when it has ended; it begins no other step: gpuaas operation watch {id}; or cancel the running steps, too: gpuaas \
         operation cancel {id}",
        id = open.id
    );
    Ok(CommandError::new(Code::OperationInProgress, detail).then(next))
}
