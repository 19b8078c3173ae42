//! The step that waits until the node of its member is connected.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use gpuaas_model::{Code, Connectivity, NodeId, OperationKind};
use gpuaas_store::{NodeRecord, StepRecord};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    dispatch::TaskEnd,
    effects::ProgressSink,
    engine::{Engine, STORE_RETRY},
    rows::OperationRows,
};

/// How often the node's row is read, because the hint that it connected to another replica can be lost.
const READ_EVERY: Duration = Duration::from_secs(30);

/// Waits until the node connects; its progress says what is known of the node, and how to end the wait without it.
pub(super) fn run(
    engine: Arc<Engine>,
    rows: &OperationRows,
    step: &StepRecord,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, TaskEnd> {
    let member = rows.of.members.iter().find(|member| Some(member.id) == step.spec.member);
    let Some((member, node)) = member.and_then(|member| Some((member.name(), member.place.node()?))) else {
        return Box::pin(async { TaskEnd::failed(Code::Internal, "the step names no member on a node") });
    };
    let workload = rows.of.workload.name.clone();
    let is_whole = rows.operation.kind == OperationKind::Decommission;
    let deadline = step.deadline_at.unwrap_or_else(|| engine.ports().clock.now());
    let describe = move |node: &NodeRecord| {
        let NodeRecord { name, connectivity, connectivity_since: since, .. } = node;
        let give_up = if is_whole {
            format!("gpuaas workload decommission {workload} --give-up {name} --reason TEXT")
        } else {
            format!("gpuaas workload remove-member {workload} {member} --give-up --reason TEXT")
        };
        format!(
            "{name} has been {connectivity} since {since}; what it still has of {member} is unknown; the removal continues when it \
             connects; if it never does, give it up: {give_up}"
        )
    };
    Box::pin(async move {
        let timed_out = engine.ports().runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            () = connected(&engine, node, |node| progress(describe(node))) => TaskEnd::Succeeded(json!({})),
            () = cancelled.cancelled() => TaskEnd::failed(Code::TaskCancelled, "the wait for the node was cancelled"),
            () = timed_out => TaskEnd::failed(Code::NodeUnreachable, "the node did not connect by the deadline"),
        }
    })
}

/// Completes when the node is connected, to this replica or to another.
async fn connected(engine: &Engine, id: NodeId, report: impl Fn(&NodeRecord)) {
    let mut shown = None;
    loop {
        // Taken before the check, so that a connection during the check is not missed.
        let changed = engine.next_connection();
        let node = match engine.store().read().await {
            Ok(mut reader) => reader.node(id).await,
            Err(error) => Err(error),
        };
        match node {
            Ok(node) if node.connectivity == Connectivity::Connected => return,
            Ok(node) => {
                // Any node's connection wakes this wait, and each progress takes the write lock.
                let now = Some((node.connectivity, node.connectivity_since));
                if shown != now {
                    report(&node);
                    shown = now;
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(READ_EVERY)) => {}
                }
            }
            Err(error) => {
                tracing::warn!(node = %id, %error, "the node could not be read yet");
                engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(STORE_RETRY)).await;
            }
        }
    }
}
