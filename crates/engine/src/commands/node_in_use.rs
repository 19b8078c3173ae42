//! Refuses changes of a node that a project holds.

use gpuaas_model::{Code, OperationKind, OperationState};
use gpuaas_store::{AllocationRecord, NodeRecord, OperationRecord, Tx};

use crate::error::CommandError;

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

/// Refuses a node that a project holds, as [`check_not_allocated`] does. The exception is a forced reset after a
/// decommission that ended without success: the workload has given the node up, but something that the platform cannot remove is
/// left. A resumed decommission then finds the reimaged machine. Returns the allocation in this case.
pub(super) async fn check_not_in_use(
    tx: &mut Tx,
    node: &NodeRecord,
    is_forced: bool,
) -> Result<Option<AllocationRecord>, CommandError> {
    let Some(held) = tx.open_allocation_of(node.id).await? else { return Ok(None) };
    if is_forced
        && let Some((workload, _)) = tx.allocation_workload(held.id).await?
        && tx.newest_operation(workload).await?.is_some_and(|newest| is_failed_decommission(&newest))
    {
        return Ok(Some(held));
    }
    Err(allocated(tx, node, &held).await?)
}

fn is_failed_decommission(operation: &OperationRecord) -> bool {
    let OperationRecord { kind, state, .. } = operation;
    *kind == OperationKind::Decommission && state.is_final() && *state != OperationState::Succeeded
}
