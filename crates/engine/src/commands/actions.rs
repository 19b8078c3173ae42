//! The operations that can be requested on a workload at present. The rules are those that decide about the request itself.

use std::collections::BTreeMap;

use gpuaas_model::{Lifecycle, MemberId, OperationKind, WorkloadId};
use gpuaas_planner::{App, lifecycle};
use gpuaas_store::{Reader, StoreError, WorkloadRecord};

use crate::{engine::Engine, rows::WorkloadRows};

/// Returns the kinds of operations that a workload's lifecycle allows and its app can carry out; none while an operation is open that does
/// not yield to people.
pub fn of_workload(engine: &Engine, workload: &WorkloadRecord, has_open_operation: bool) -> Vec<OperationKind> {
    match engine.catalog().app(&workload.app) {
        Some(entry) if !has_open_operation => offered(&*entry.app, workload.lifecycle),
        Some(_) | None => Vec::new(),
    }
}

/// Returns the kinds of operations that can be requested for each member of a workload; none while an operation is open that does not yield
/// to people.
pub async fn of_members(
    engine: &Engine,
    reader: &mut Reader,
    id: WorkloadId,
) -> Result<BTreeMap<MemberId, Vec<OperationKind>>, StoreError> {
    let rows = WorkloadRows::load(reader, id).await?;
    let newest = reader.newest_operation(id).await?;
    let is_busy = newest.is_some_and(|operation| !operation.state.is_final() && operation.by_platform.is_none());
    let entry = match engine.catalog().app(&rows.workload.app) {
        Some(entry) if !is_busy => entry,
        Some(_) | None => return Ok(BTreeMap::new()),
    };
    let (view, allowed) = (rows.view(), offered(&*entry.app, rows.workload.lifecycle));
    let of = |member: &gpuaas_planner::MemberView| {
        let mut kinds = entry.app.member_operations(member, &view);
        kinds.retain(|kind| allowed.contains(kind));
        (member.id, kinds)
    };
    Ok(view.members.iter().map(of).collect())
}

fn offered(app: &dyn App, lifecycle: Lifecycle) -> Vec<OperationKind> {
    let available = app.manifest().operations.iter().filter(|spec| spec.is_available);
    available.map(|spec| spec.kind).filter(|kind| lifecycle::allows(*kind, lifecycle)).collect()
}
