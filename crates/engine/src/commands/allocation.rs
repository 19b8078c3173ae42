//! Commands that allocate nodes to projects.

use std::sync::Arc;

use gpuaas_model::{
    AllocationEvent, AllocationId, AllocationState, AuditAction, Code, EventKind, NodeEvent, NodeId, NodeState,
    Permission, ProjectId,
};
use gpuaas_store::AllocationRecord;
use serde_json::json;

use super::{audit, provision::change, reimage};
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    ownership::check_takes_tasks,
    precondition::Precondition,
    record::{EventScope, platform_event},
};

/// Allocates a node to a project. The allocation becomes usable once the node was inspected.
pub async fn create(
    engine: &Arc<Engine>,
    caller: &Caller,
    project: ProjectId,
    node: NodeId,
) -> Result<AllocationRecord, CommandError> {
    caller.require(Permission::AllocationsWrite)?;
    let ports = engine.ports();
    let mut tx = engine.store().begin().await?;
    let (project, node) = (tx.project(project).await?, tx.node(node).await?);
    if node.state != NodeState::Active {
        let detail = format!("{} cannot be allocated: its state is {}", node.name, node.state);
        return Err(CommandError::new(Code::NodeUnavailable, detail)
            .about("node")
            .then("choose a node that is active"));
    }
    if let Some(held) = tx.open_allocation_of(node.id).await? {
        let holder = tx.project(held.project).await?.name;
        let detail = format!("project {holder} already holds {}", node.name);
        return Err(CommandError::new(Code::NodeUnavailable, detail).about("node").then("choose another node"));
    }
    check_takes_tasks(&node.name, node.agent_problem.as_ref())?;
    let allocation = AllocationRecord {
        id: AllocationId::generate(&*ports.clock, &*ports.entropy),
        project: project.id,
        node: node.id,
        state: AllocationState::Requested,
        detail: None,
        created_at: ports.clock.now(),
        generation: 0,
    };
    tx.insert_allocation(&allocation).await?;
    let events = EventScope { project: project.id, correlation: caller.correlation };
    let data = json!({ "node": node.name, "state": allocation.state });
    events.event(&mut tx, EventKind::AllocationChanged, "allocation", allocation.id.to_string(), data).await?;
    let metadata = json!({ "node": node.name, "project": project.name });
    let target = format!("allocation/{}", allocation.id);
    audit(&mut tx, caller, AuditAction::AllocationCreate, target, Some(project.id), metadata).await?;
    tx.commit().await?;
    engine.provision(allocation.id, caller.correlation);
    Ok(allocation)
}

/// Releases a node from a project. The node's identity ends, and it cannot be used until it was reimaged, because the tenant had root on
/// it.
pub async fn release(
    engine: &Engine,
    caller: &Caller,
    id: AllocationId,
    precondition: &Precondition,
) -> Result<AllocationRecord, CommandError> {
    caller.require(Permission::AllocationsWrite)?;
    let mut tx = engine.store().begin().await?;
    let allocation = tx.allocation(id).await?;
    precondition.check(format_args!("allocation {id}"), &allocation)?;
    if let Some((_, workload)) = tx.allocation_workload(id).await? {
        let project = tx.project(allocation.project).await?.name;
        let next = format!("decommission it first: gpuaas workload decommission {workload} --project {project}");
        return Err(CommandError::new(Code::AllocationInUse, format!("workload {workload} uses it")).then(next));
    }
    let allocation = change(&mut tx, allocation, AllocationEvent::Release, None, caller.correlation).await?;
    let allocation = change(&mut tx, allocation, AllocationEvent::Cleaned, None, caller.correlation).await?;
    let mut node = tx.node(allocation.node).await?;
    node.state = node.state.on(NodeEvent::TenantLeft)?;
    node.epoch += 1;
    reimage::require_proof(engine, &mut tx, &mut node).await?;
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "state": node.state });
    let correlation = Some(caller.correlation);
    platform_event(&mut tx, EventKind::NodeStateChanged, "node", node.id.to_string(), correlation, data).await?;
    let metadata = json!({ "node": node.name });
    audit(
        &mut tx,
        caller,
        AuditAction::AllocationRelease,
        format!("allocation/{id}"),
        Some(allocation.project),
        metadata,
    )
    .await?;
    caller.commit(tx).await?;
    Ok(allocation)
}
