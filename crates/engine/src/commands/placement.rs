//! Placement options of an app: every allocation of the project, with the reasons against the unusable ones.

use gpuaas_model::{Code, MemberId, MemberPlace, ProjectId, Reason, WorkloadId};
use gpuaas_planner::{
    App, NodeView,
    placement::{Candidate, Placed, unusable},
};
use gpuaas_store::{AllocationRecord, MemberRecord, NodeRecord, Page, Reader, StoreError};
use serde_json::Value;

use crate::{caller::Caller, engine::Engine, error::CommandError, findings};

/// An allocation as a place for an app, with the reasons against it.
#[derive(Clone, Debug)]
pub struct PlacementOption {
    /// The allocation.
    pub allocation: AllocationRecord,
    /// The allocation's node.
    pub node: NodeRecord,
    /// The reasons for which nothing can be placed there; empty if it is usable.
    pub reasons: Vec<Reason>,
}

/// Lists the allocations through which `project` holds nodes as places for `app`, oldest first.
pub async fn options(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    app: &str,
    page: &Page,
) -> Result<Vec<PlacementOption>, CommandError> {
    caller.require_visible(project, "project", project)?;
    let entry = engine.catalog().require(app)?;
    let mut reader = engine.store().read().await?;
    let mut options = Vec::new();
    let allocations = reader.open_allocations(project, page).await?;
    for (candidate, allocation, node) in candidates(&mut reader, allocations).await? {
        let reasons = unusable("allocation_id", &candidate, entry.app.manifest());
        options.push(PlacementOption { allocation, node, reasons });
    }
    Ok(options)
}

/// Returns the members that `intent` requests in `project`, or one refusal with all reasons.
pub(crate) async fn place(
    reader: &mut Reader,
    app: &dyn App,
    project: ProjectId,
    intent: &Value,
    existing: &[gpuaas_planner::MemberView],
) -> Result<Vec<Placed>, CommandError> {
    let named = app.named_allocations(intent);
    let mut allocations = reader.allocations_of_ids(&named).await?;
    // Allocations of other projects look absent.
    allocations.retain(|allocation| allocation.project == project);
    let candidates = candidates(reader, allocations).await?;
    let candidates: Vec<Candidate> = candidates.into_iter().map(|(candidate, ..)| candidate).collect();
    app.place(intent, &candidates, existing)
        .map_err(|reasons| CommandError::because(Code::PlacementInvalid, "placement refused", reasons))
}

/// The allocations in the planner's form, each with its node.
async fn candidates(
    reader: &mut Reader,
    allocations: Vec<AllocationRecord>,
) -> Result<Vec<(Candidate, AllocationRecord, NodeRecord)>, StoreError> {
    let ids: Vec<_> = allocations.iter().map(|allocation| allocation.id).collect();
    let users = reader.allocation_users(&ids).await?;
    let nodes = reader.nodes_of_ids(allocations.iter().map(|allocation| allocation.node)).await?;
    let each = allocations.into_iter().map(|allocation| {
        // Several allocations may have the same node, because released ones are included.
        let node = nodes.get(&allocation.node).cloned();
        let node = node.ok_or_else(|| StoreError::NotFound { what: "node", id: allocation.node.to_string() })?;
        let used_by = users.get(&allocation.id).map(|user| user.workload_name.to_string());
        Ok((candidate(&allocation, &node, used_by), allocation, node))
    });
    each.collect()
}

fn candidate(allocation: &AllocationRecord, node: &NodeRecord, used_by: Option<String>) -> Candidate {
    Candidate {
        allocation: allocation.id,
        project: allocation.project,
        state: allocation.state,
        node: NodeView { id: node.id, name: node.name.clone(), address: node.address().to_owned() },
        node_state: node.state,
        connectivity: node.connectivity,
        connectivity_since: node.connectivity_since,
        support: node.support.clone(),
        problem: node.agent_problem.as_ref().map(|problem| (problem.code, problem.detail.clone())),
        blocking: findings::blocking_checks(node.preflight.as_ref()),
        used_by,
    }
}

/// Creates member rows for the placed members.
pub(crate) fn members(engine: &Engine, workload: WorkloadId, placed: &[Placed]) -> Vec<MemberRecord> {
    let now = engine.ports().clock.now();
    placed
        .iter()
        .map(|placed| {
            let id = MemberId::generate(&*engine.ports().clock, &*engine.ports().entropy);
            let place = MemberPlace::Allocation { allocation: placed.allocation, node: placed.node };
            MemberRecord::pending(id, workload, (placed.component_key.clone(), placed.ordinal), place, now)
        })
        .collect()
}
