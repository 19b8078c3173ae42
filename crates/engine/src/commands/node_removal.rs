//! Removes nodes: retiring ends a node's identity for good, and deleting a retired node frees its name. Its row stays, because allocations,
//! members and tasks of the past refer to it.

use gpuaas_model::{AuditAction, Code, EventKind, NodeEvent, NodeId, NodeState, Permission};
use gpuaas_store::{NodeRecord, Tx};
use serde_json::json;

use super::{audit, node_in_use::check_not_allocated};
use crate::{
    caller::Caller, engine::Engine, error::CommandError, precondition::Precondition, record::platform_event, waiting,
};

/// Removes a node from use permanently. Refuses a node that a project holds.
pub async fn retire(
    engine: &Engine,
    caller: &Caller,
    id: NodeId,
    precondition: &Precondition,
) -> Result<NodeRecord, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let mut node = free_node(&mut tx, id, precondition).await?;
    if node.state == NodeState::Retired {
        let next = format!("delete it: gpuaas node delete {}", node.name);
        return Err(CommandError::new(Code::StateConflict, format!("{} is already retired", node.name)).then(next));
    }
    node.state = node.state.on(NodeEvent::Retire)?;
    // Certificates and enrollment strings of earlier enrollments are void from now on.
    node.epoch += 1;
    tx.expire_enrollments(node.id, engine.ports().clock.now()).await?;
    record(tx, caller, node, (EventKind::NodeStateChanged, AuditAction::NodeRetire)).await
}

/// Deletes a retired node.
pub async fn delete(
    engine: &Engine,
    caller: &Caller,
    id: NodeId,
    precondition: &Precondition,
) -> Result<NodeRecord, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let mut node = free_node(&mut tx, id, precondition).await?;
    if node.state != NodeState::Retired {
        let next = format!("retire it first: gpuaas node retire {}", node.name);
        let detail = format!("{} cannot be deleted: its state is {}", node.name, node.state);
        return Err(CommandError::new(Code::StateConflict, detail).then(next));
    }
    node.deleted_at = Some(engine.ports().clock.now());
    record(tx, caller, node, (EventKind::NodeDeleted, AuditAction::NodeDelete)).await
}

/// Reads a node that exists and that no project holds.
async fn free_node(tx: &mut Tx, id: NodeId, precondition: &Precondition) -> Result<NodeRecord, CommandError> {
    let node = tx.node(id).await?;
    if node.deleted_at.is_some() {
        return Err(CommandError::not_found("node", id));
    }
    precondition.check(&node.name, &node)?;
    check_not_allocated(tx, &node).await?;
    Ok(node)
}

/// Writes the change with its event and audit record.
async fn record(
    mut tx: Tx,
    caller: &Caller,
    node: NodeRecord,
    (event, action): (EventKind, AuditAction),
) -> Result<NodeRecord, CommandError> {
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "state": node.state, "waiting": waiting::of_node(&node, None) });
    let correlation = Some(caller.correlation);
    platform_event(&mut tx, event, "node", node.id.to_string(), correlation, data).await?;
    audit(&mut tx, caller, action, format!("node/{}", node.name), None, json!({ "node": node.id })).await?;
    caller.commit(tx).await?;
    Ok(node)
}
