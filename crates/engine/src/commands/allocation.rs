//! Commands that allocate nodes to projects.

use std::sync::Arc;

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    AllocationEvent, AllocationId, AllocationState, AuditAction, Code, EventKind, MemberState, Name, NodeEvent, NodeId,
    NodeState, OperationKind, OperationState, Permission, ProjectId, WorkloadId,
};
use gpuaas_store::{AllocationRecord, MemberRecord, NodeRecord, Tx};
use serde_json::json;

use super::{audit, provision::change, reimage};
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    findings,
    ownership::check_takes_tasks,
    precondition::Precondition,
    record::{EventScope, platform_event},
    waiting,
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
        let next = match node.state {
            NodeState::NeedsReimage => {
                format!(
                    "reimage its machine, then run: gpuaas node reset {}; or choose a node that is active",
                    node.name
                )
            }
            NodeState::Registered | NodeState::Enrolled | NodeState::Active | NodeState::Retired => {
                "choose a node that is active".to_owned()
            }
        };
        return Err(CommandError::new(Code::NodeUnavailable, detail).about("node").then(next));
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
    let waiting = waiting::of_allocation(&allocation, &node);
    let data = json!({ "node": node.name, "state": allocation.state, "waiting": waiting });
    events.event(&mut tx, EventKind::AllocationChanged, "allocation", allocation.id.to_string(), data).await?;
    let metadata = json!({ "node": node.name, "project": project.name });
    let target = format!("allocation/{}", allocation.id);
    audit(&mut tx, caller, AuditAction::AllocationCreate, target, Some(project.id), metadata).await?;
    tx.commit().await?;
    engine.provision(allocation.id, caller.correlation);
    Ok(allocation)
}

/// Refuses to release a node that is not known to be clean. The error names the workload that uses it and why its removal has not ended, or
/// the member that was given up.
async fn check_proven(tx: &mut Tx, allocation: &AllocationRecord, node: &NodeRecord) -> Result<(), CommandError> {
    if let Some(user) = tx.allocation_user(allocation.id).await? {
        let (id, workload) = (user.workload, user.workload_name);
        let project = tx.project(allocation.project).await?.name;
        let next = end_of_use(tx, id, &workload, &project).await?;
        let members = tx.members_of(id).await?;
        let is_its =
            |of: &&MemberRecord| of.place.allocation() == Some(allocation.id) && of.state != MemberState::Removed;
        let member = members.iter().find(is_its);
        let why = member.and_then(|member| member.state.fault()).map(|fault| format!("; {}", fault.summary));
        let detail = format!("workload {workload} uses it{}", why.unwrap_or_default());
        return Err(CommandError::new(Code::AllocationInUse, detail).then(next));
    }
    let Some(unproven) = findings::removal_unproven(node) else { return Ok(()) };
    let (name, detail) = (&node.name, &unproven.detail);
    let next = format!(
        "when {name} is connected: gpuaas node inspect {name}; if it is not clean or never returns: gpuaas node reset {name} --force \
         --reason TEXT, then release it again"
    );
    Err(CommandError::new(Code::AllocationUnproven, format!("nothing shows that {name} is clean: {detail}")).then(next))
}

/// Says how the use of a node by workload `name` ends: with its decommission. One that has begun is not requested again, but brought to its
/// end.
async fn end_of_use(tx: &mut Tx, id: WorkloadId, name: &Name, project: &Name) -> Result<String, CommandError> {
    let newest = tx.newest_operation(id).await?;
    let Some(begun) = newest.filter(|newest| newest.kind == OperationKind::Decommission) else {
        return Ok(format!("decommission it first: gpuaas workload decommission {name} --project {project}"));
    };
    let resume = format!("resume its decommission: gpuaas workload resume {name} --project {project}");
    Ok(match begun.state {
        OperationState::Queued | OperationState::Running | OperationState::Waiting => {
            format!("wait for the end of its decommission: gpuaas operation watch {}", begun.id)
        }
        OperationState::NeedsAttention | OperationState::Failed => {
            let give_up = format!("gpuaas workload decommission {name} --project {project} --force --reason TEXT");
            format!("{resume}; or give up what cannot be removed: {give_up}")
        }
        OperationState::Cancelled | OperationState::Succeeded => resume,
    })
}

/// Ends the node's identity and requires a reimaged machine. A node that was reset while the project held it has no identity, and needs the
/// proof already; the string of its forced reset, which would accept the machine as it is, ends with the allocation.
async fn take_back(engine: &Engine, tx: &mut Tx, mut node: NodeRecord) -> Result<NodeRecord, CommandError> {
    if node.state == NodeState::Registered && node.left_by_tenant.is_some() {
        tx.expire_enrollments(node.id, engine.ports().clock.now()).await?;
        return Ok(node);
    }
    node.state = node.state.on(NodeEvent::TenantLeft)?;
    node.epoch += 1;
    reimage::require_proof(engine, tx, &mut node).await?;
    Ok(tx.update_node(&node).await?)
}

/// Releases a node from a project. The node's identity ends, and it cannot be used until it was reimaged, because the tenant had root on
/// it. Refuses while a workload uses it, and while nothing shows what a member that was given up left there.
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
    let node = tx.node(allocation.node).await?;
    if !bugs::on(Bug::ReleasedInUse) {
        check_proven(&mut tx, &allocation, &node).await?;
    }
    let allocation = change(&mut tx, allocation, AllocationEvent::Release, None, caller.correlation).await?;
    let allocation = change(&mut tx, allocation, AllocationEvent::Cleaned, None, caller.correlation).await?;
    let node = take_back(engine, &mut tx, node).await?;
    let data = json!({ "name": node.name, "state": node.state, "waiting": waiting::of_node(&node, None) });
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
