//! Sends a signed no-op to a node, which tests and times the whole path of a task.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Code, NodeId, TaskState};
use gpuaas_store::TaskRecord;
use gpuaas_wire::task::{Noop, TaskOutcome, TaskSpec};
use serde_json::json;

use super::{audit, node_task};
use crate::{
    caller::Caller,
    dispatch::{Origin, Outgoing},
    engine::Engine,
    error::CommandError,
    ownership,
};

/// Time limit of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a no-op and waits for its end. Returns the task and the elapsed time. Leaves the caller's audit record and the audit records and
/// events of any task.
pub async fn ping(engine: &Arc<Engine>, caller: &Caller, id: NodeId) -> Result<(TaskRecord, Duration), CommandError> {
    let mut tx = engine.store().begin().await?;
    let access = ownership::for_operator(&mut tx, caller, id).await?;
    let name = access.name().clone();
    let origin = Origin::standalone(caller.correlation);
    let expires_at = engine.ports().clock.now().plus(PING_TIMEOUT);
    let what = (Noop::TYPE, Noop::OLDEST);
    let ping = engine.record_task(&mut tx, access, origin, what, json!(Noop {}), expires_at).await?;
    let metadata = json!({ "task": ping.task.id });
    audit(&mut tx, caller, AuditAction::NodePing, format!("node/{name}"), None, metadata).await?;
    tx.commit().await?;
    let within = engine.clone();
    let (ended, took) =
        node_task::run_in_background(engine, "ping", async move { followed(&within, ping).await }).await?;
    if let Some(TaskOutcome::Failed { failure }) = &ended.outcome {
        match failure.code {
            Code::EnvelopeExpired | Code::DiskFull => {
                return Err(CommandError::new(failure.code, format!("{} refused the task: {}", name, failure.message))
                    .then(format!("see its clock and its disk: gpuaas node show {}", name)));
            }
            Code::AgentLedgerDamaged => {
                return Err(CommandError::new(failure.code, format!("{name}: {}", failure.message))
                    .then(ownership::reenroll_hint(&name)));
            }
            Code::NodeBusy | Code::Unavailable => return Err(node_task::busy(&name, failure)),
            _ => {}
        }
    }
    match ended.state {
        TaskState::Succeeded => Ok((ended, took)),
        TaskState::Expired => Err(CommandError::new(Code::NodeUnreachable, format!("{} did not answer", name))
            .then(format!("see its connectivity: gpuaas node show {}", name))),
        state => Err(CommandError::new(Code::Internal, format!("the no-op task on {} ended as {state}", name))),
    }
}

async fn followed(engine: &Engine, ping: Outgoing) -> Result<(TaskRecord, Duration), CommandError> {
    let began = engine.ports().runtime.elapsed();
    let task = ping.task.clone();
    let end = node_task::end(engine, ping).await;
    let mut tx = engine.store().begin().await?;
    let ended = engine.record_task_end(&mut tx, task, &end).await?;
    tx.commit().await?;
    let took = engine.ports().runtime.elapsed().saturating_sub(began);
    Ok((ended, took))
}
