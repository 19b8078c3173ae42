//! Sends a signed no-op to a node, which tests and times the whole path of a task.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Connectivity, NodeId};
use gpuaas_store::{NodeRecord, TaskRecord};
use gpuaas_wire::task::{Noop, TaskSpec};
use serde_json::json;

use super::{audit, platform_task};
use crate::{
    caller::Caller,
    dispatch::{Origin, Outgoing},
    engine::Engine,
    error::CommandError,
    ownership,
};

/// Time limit of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a no-op and waits for its end. Returns the task and the elapsed time. Writes the caller's audit record and, as for every task, its
/// audit records and events.
pub async fn ping(engine: &Arc<Engine>, caller: &Caller, id: NodeId) -> Result<(TaskRecord, Duration), CommandError> {
    let mut tx = engine.store().begin().await?;
    let access = ownership::for_operator(&mut tx, caller, id).await?;
    let node = tx.node(id).await?;
    // A node that has just lost its connection may be back within the time limit.
    if node.connectivity != Connectivity::Stale {
        platform_task::check_reachable(&node)?;
    }
    let origin = Origin::standalone(caller.correlation);
    let expires_at = engine.ports().clock.now().plus(PING_TIMEOUT);
    let what = (Noop::TYPE, Noop::OLDEST);
    let ping = engine.record_task(&mut tx, access, origin, what, json!(Noop {}), expires_at).await?;
    let metadata = json!({ "task": ping.task.id });
    audit(&mut tx, caller, AuditAction::NodePing, format!("node/{}", node.name), None, metadata).await?;
    tx.commit().await?;
    let within = engine.clone();
    platform_task::run_in_background(engine, "ping", async move { within.end_ping(&node, ping).await }).await
}

impl Engine {
    /// Follows a ping to its end.
    async fn end_ping(&self, node: &NodeRecord, ping: Outgoing) -> Result<(TaskRecord, Duration), CommandError> {
        let began = self.ports().runtime.elapsed();
        let task = ping.task.clone();
        let end = platform_task::end(self, ping).await;
        let mut tx = self.store().begin().await?;
        let ended = self.record_task_end(&mut tx, task, &end).await?;
        tx.commit().await?;
        platform_task::result(node, end)?;
        Ok((ended, self.ports().runtime.elapsed().saturating_sub(began)))
    }
}
