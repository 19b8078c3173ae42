//! Refuses changes of a node that a project holds.

use gpuaas_model::{AllocationId, Code, MemberEvent, OperationKind, OperationState, WorkloadId};
use gpuaas_planner::StepSpec;
use gpuaas_store::{AllocationRecord, NodeRecord, OperationRecord, StepRecord, Tx};

use crate::{error::CommandError, findings};

/// Refuses a node that a project holds: the tenant has root there, and its workloads must not be cut off.
pub(super) async fn check_not_allocated(tx: &mut Tx, node: &NodeRecord) -> Result<(), CommandError> {
    match tx.open_allocation_of(node.id).await? {
        None => Ok(()),
        Some(held) => Err(allocated(tx, node, &held).await?),
    }
}

async fn allocated(tx: &mut Tx, node: &NodeRecord, held: &AllocationRecord) -> Result<CommandError, CommandError> {
    let project = tx.project(held.project).await?.name;
    let detail = format!("project {project} holds {} (allocation {})", node.name, held.id);
    let next = format!("release it first: gpuaas allocation release {}", held.id);
    Ok(CommandError::new(Code::AllocationInUse, detail).then(next))
}

/// Refuses a node that a project holds, as [`check_not_allocated`] does. The exceptions are forced resets: after a decommission or a removal
/// of the member there that ended without success, because something that the platform cannot remove is left, and the resumed operation then
/// finds the reimaged machine; and after a member was given up on the node, which no workload uses any more. Returns the allocation in
/// these cases.
pub(super) async fn check_not_in_use(
    tx: &mut Tx,
    node: &NodeRecord,
    is_forced: bool,
) -> Result<Option<AllocationRecord>, CommandError> {
    let Some(held) = tx.open_allocation_of(node.id).await? else { return Ok(None) };
    let is_left = match tx.allocation_user(held.id).await? {
        Some(user) => is_decommission_failed(tx, user.workload).await? || is_removal_failed(tx, held.id, node).await?,
        None => findings::removal_unproven(node).is_some(),
    };
    if is_forced && is_left {
        return Ok(Some(held));
    }
    Err(allocated(tx, node, &held).await?)
}

async fn is_decommission_failed(tx: &mut Tx, workload: WorkloadId) -> Result<bool, CommandError> {
    let newest = tx.newest_operation(workload).await?;
    Ok(newest.is_some_and(|newest| newest.kind == OperationKind::Decommission && is_unsuccessful(&newest)))
}

/// Returns true if the operation that last changed the member of this allocation had begun to remove it, and ended without success.
async fn is_removal_failed(tx: &mut Tx, allocation: AllocationId, node: &NodeRecord) -> Result<bool, CommandError> {
    let members = tx.members_on(node.id).await?;
    let member = members.iter().find(|member| member.place.allocation() == Some(allocation));
    let Some((member, last)) = member.and_then(|member| Some((member.id, member.last_operation?))) else {
        return Ok(false);
    };
    if !is_unsuccessful(&tx.operation(last).await?) {
        return Ok(false);
    }
    let has_begun = |step: &StepRecord| {
        let StepSpec { member: of, on_first_start, .. } = &step.spec;
        *of == Some(member) && *on_first_start == Some(MemberEvent::Remove) && step.attempts > 0
    };
    Ok(tx.steps_of(last).await?.iter().any(has_begun))
}

fn is_unsuccessful(operation: &OperationRecord) -> bool {
    operation.state.is_final() && operation.state != OperationState::Succeeded
}
