//! A step that only checks or marks the control plane's own records.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::{AllocationState, Code, Connectivity, MemberPlace};
use gpuaas_planner::RecordKind;
use gpuaas_store::{MemberRecord, StepRecord};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::await_node;
use crate::{
    dispatch::TaskEnd, effects::ProgressSink, engine::Engine, error::EngineError, ownership::check_takes_tasks,
    rows::OperationRows,
};

/// Runs the step.
pub(super) fn run(
    engine: Arc<Engine>,
    rows: &OperationRows,
    step: &StepRecord,
    record: RecordKind,
    progress: ProgressSink,
    cancelled: CancellationToken,
) -> BoxFuture<'static, TaskEnd> {
    match record {
        // A give-up takes effect in the transaction that records the end of its step.
        RecordKind::Milestone | RecordKind::GiveUp => Box::pin(async { TaskEnd::Succeeded(json!({})) }),
        RecordKind::AwaitNode => await_node::run(engine, rows, step, progress, cancelled),
        RecordKind::ConfirmPlacement => {
            let targets = rows.operation.targets.clone();
            let members =
                rows.of.members.iter().filter(|member| targets.contains(&member.id)).cloned().collect::<Vec<_>>();
            let deadline = step.deadline_at.unwrap_or_else(|| engine.ports().clock.now());
            Box::pin(async move {
                let given_up = engine.ports().runtime.sleep_until(deadline);
                let status = tokio::select! {
                    biased;
                    status = confirm(&engine, &members, &progress) => status,
                    () = cancelled.cancelled() => {
                        let message = "the placement was cancelled before it was confirmed";
                        return TaskEnd::failed(Code::TaskCancelled, message);
                    }
                    // The final check names the nodes that are still disconnected, and since when.
                    () = given_up => placement_status(&engine, &members).await,
                };
                match status {
                    Ok(PlacementStatus::Ready) => TaskEnd::Succeeded(json!({})),
                    Ok(PlacementStatus::Waiting(why) | PlacementStatus::Lost(why)) => {
                        TaskEnd::failed(Code::AllocationUnreachable, why)
                    }
                    Err(error) => TaskEnd::failed(Code::Unavailable, error.to_string()),
                }
            })
        }
    }
}

/// The combined state of the members' places.
enum PlacementStatus {
    /// All can be used.
    Ready,
    /// The first whose node has been disconnected so briefly that it may only be restarting, with the reason.
    Waiting(String),
    /// The first that can no longer be used, with the reason.
    Lost(String),
}

/// Waits until every place is usable or one is lost: a node may have been lost since the operation was accepted.
///
/// Waits for a node whose channel has just ended: it reconnects or becomes unreachable, and both wake this loop.
async fn confirm(
    engine: &Engine,
    members: &[MemberRecord],
    progress: &ProgressSink,
) -> Result<PlacementStatus, EngineError> {
    loop {
        // Taken before the check, so that a change during the check is not missed.
        let changed = engine.next_connection();
        match placement_status(engine, members).await? {
            PlacementStatus::Waiting(why) => progress(format!("waiting: {why}")),
            status @ (PlacementStatus::Ready | PlacementStatus::Lost(_)) => return Ok(status),
        }
        changed.await;
    }
}

async fn placement_status(engine: &Engine, members: &[MemberRecord]) -> Result<PlacementStatus, EngineError> {
    let mut reader = engine.store().read().await?;
    let mut status = PlacementStatus::Ready;
    for member in members {
        // The platform knows nothing of an external machine before it is used.
        let MemberPlace::Allocation { allocation, node } = member.place else { continue };
        let (allocation, node) = (reader.allocation(allocation).await?, reader.node(node).await?);
        if allocation.state != AllocationState::Active {
            return Ok(PlacementStatus::Lost(format!("the allocation of {} is {}", node.name, allocation.state)));
        }
        if let Err(refused) = check_takes_tasks(&node.name, node.agent_problem.as_ref()) {
            return Ok(PlacementStatus::Lost(refused.to_string()));
        }
        let why = || format!("{} has been {} since {}", node.name, node.connectivity, node.connectivity_since);
        match node.connectivity {
            Connectivity::Connected => {}
            Connectivity::Stale => {
                if matches!(status, PlacementStatus::Ready) {
                    status = PlacementStatus::Waiting(why());
                }
            }
            Connectivity::Never | Connectivity::Unreachable => return Ok(PlacementStatus::Lost(why())),
        }
    }
    Ok(status)
}
