//! A signed no-op to a node: measures the whole way of a task, and proves it.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Code, NodeId, Permission, TaskState};
use gpuaas_store::TaskRecord;
use gpuaas_wire::task::{Noop, TaskOutcome, TaskSpec};
use serde_json::json;

use super::{audit, node_task};
use crate::{caller::Caller, engine::Engine, error::CommandError};

/// A no-op that takes longer than this has not answered.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a no-op and waits for its end. The caller's audit record, the task's own two and its events are left as by any task.
pub async fn ping(engine: &Arc<Engine>, caller: &Caller, id: NodeId) -> Result<(TaskRecord, Duration), CommandError> {
    caller.must(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    let purpose = node_task::purpose(caller.correlation);
    let expires_at = engine.ports().clock.now().plus(PING_TIMEOUT);
    let task =
        engine.record_task(&mut tx, &node, purpose, (Noop::TYPE, Noop::OLDEST), json!(Noop {}), expires_at).await?;
    audit(&mut tx, caller, AuditAction::NodePing, format!("node/{}", node.name), None, json!({ "task": task.id }))
        .await?;
    tx.commit().await?;
    let within = engine.clone();
    let (ended, took) = node_task::beside(engine, "ping", async move { followed(&within, task).await }).await?;
    if let Some(TaskOutcome::Failed { failure }) = &ended.outcome
        && matches!(failure.code, Code::EnvelopeExpired | Code::DiskFull)
    {
        return Err(CommandError::new(failure.code, format!("{} refused it: {}", node.name, failure.message))
            .then(format!("see its clock and its disk: gpuaas node show {}", node.name)));
    }
    match ended.state {
        TaskState::Succeeded => Ok((ended, took)),
        TaskState::Expired => Err(CommandError::new(Code::NodeUnreachable, format!("{} did not answer", node.name))
            .then(format!("see its connectivity: gpuaas node show {}", node.name))),
        state => Err(CommandError::new(Code::Internal, format!("the no-op on {} ended {state}", node.name))),
    }
}

async fn followed(engine: &Engine, task: TaskRecord) -> Result<(TaskRecord, Duration), CommandError> {
    let began = engine.ports().runtime.elapsed();
    let end = node_task::end(engine, &task).await;
    let mut tx = engine.store().begin().await?;
    engine.record_task_end(&mut tx, task.clone(), &end).await?;
    let ended = tx.task(task.id).await?;
    tx.commit().await?;
    let took = engine.ports().runtime.elapsed().saturating_sub(began);
    Ok((ended, took))
}
