//! A step that only looks at or marks our own records.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_model::{AllocationState, Code, Connectivity};
use gpuaas_planner::RecordKind;
use gpuaas_store::StoreError;
use gpuaas_wire::task::TaskFailure;
use serde_json::json;

use super::AttemptEnd;
use crate::{engine::Engine, rows::OperationRows};

/// Does it.
pub(super) fn run(engine: Arc<Engine>, rows: &OperationRows, record: RecordKind) -> BoxFuture<'static, AttemptEnd> {
    match record {
        RecordKind::Milestone => Box::pin(async { AttemptEnd::Succeeded(json!({})) }),
        RecordKind::ConfirmPlacement => {
            let targets = rows.operation.targets.clone();
            let members =
                rows.of.members.iter().filter(|member| targets.contains(&member.id)).cloned().collect::<Vec<_>>();
            Box::pin(async move {
                match unusable(&engine, members).await {
                    Ok(None) => AttemptEnd::Succeeded(json!({})),
                    Ok(Some(why)) => AttemptEnd::Failed(TaskFailure::new(Code::AllocationUnreachable, why)),
                    Err(error) => AttemptEnd::Failed(TaskFailure::new(Code::Unavailable, error.to_string())),
                }
            })
        }
    }
}

/// The first reason why a member's place is no longer usable: between acceptance and now a node may have gone.
async fn unusable(engine: &Engine, members: Vec<gpuaas_store::MemberRecord>) -> Result<Option<String>, StoreError> {
    let mut reader = engine.store().read().await?;
    for member in members {
        let (allocation, node) = (reader.allocation(member.allocation).await?, reader.node(member.node).await?);
        if allocation.state != AllocationState::Active {
            return Ok(Some(format!("the allocation of {} is {}", node.name, allocation.state)));
        }
        if node.connectivity != Connectivity::Connected {
            return Ok(Some(format!("{} is {} since {}", node.name, node.connectivity, node.connectivity_since)));
        }
    }
    Ok(None)
}
