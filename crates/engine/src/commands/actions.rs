//! What can be requested of a workload at present. The rules are those that decide about the request itself.

use std::collections::BTreeMap;

use gpuaas_model::{Lifecycle, MemberId, Name, OperationKind, WorkloadAction, WorkloadId};
use gpuaas_planner::{App, ControlRefusal, NewestOperation, control, lifecycle};
use gpuaas_store::{OperationRecord, Reader, StoreError, WorkloadRecord};

use crate::{
    engine::Engine,
    rows::{WorkloadRows, newest_operation},
};

/// Returns what can be requested of a workload, whose newest operation is `newest`: to resume that one first, then the kinds of operations
/// that the lifecycle allows and the app can carry out, then to cancel. While an operation is open that does not yield to people, no other
/// one can be started.
pub fn of_workload(
    engine: &Engine,
    workload: &WorkloadRecord,
    newest: Option<&OperationRecord>,
) -> Vec<WorkloadAction> {
    let kinds = match engine.catalog().app(&workload.app) {
        Some(entry) if !newest.is_some_and(is_busy) => offered(&*entry.app, workload.lifecycle),
        Some(_) | None => Vec::new(),
    };
    with_control(kinds, newest.map(newest_operation), &workload.name)
}

/// Adds to kinds of operations what can be done with the newest operation of the workload named `name`.
fn with_control(kinds: Vec<OperationKind>, newest: Option<NewestOperation>, name: &Name) -> Vec<WorkloadAction> {
    let resume = control::check_resume(newest, name).is_ok().then_some(WorkloadAction::Resume);
    let cancel = control::check_cancel(newest, name).is_ok().then_some(WorkloadAction::Cancel);
    resume.into_iter().chain(kinds.into_iter().map(WorkloadAction::Start)).chain(cancel).collect()
}

/// Returns why the newest operation of a workload cannot be resumed, and why it cannot be cancelled, where that is so.
pub fn refused_control(
    workload: &WorkloadRecord,
    newest: Option<&OperationRecord>,
) -> Vec<(WorkloadAction, ControlRefusal)> {
    let newest = newest.map(newest_operation);
    let resume = control::check_resume(newest, &workload.name).err().map(|refusal| (WorkloadAction::Resume, refusal));
    let cancel = control::check_cancel(newest, &workload.name).err().map(|refusal| (WorkloadAction::Cancel, refusal));
    resume.into_iter().chain(cancel).collect()
}

/// Returns true while an operation is open that does not yield to people.
fn is_busy(newest: &OperationRecord) -> bool {
    !newest.state.is_final() && newest.by_platform.is_none()
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
    let entry = match engine.catalog().app(&rows.workload.app) {
        Some(entry) if !newest.as_ref().is_some_and(is_busy) => entry,
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

#[cfg(test)]
mod tests {
    use gpuaas_model::OperationState;

    use super::*;

    fn shown(kinds: &[OperationKind], state: OperationState, cancel_requested: bool) -> Vec<&'static str> {
        let id = "0198c0de-7a3b-7c11-9b54-0242ac12000b".parse().expect("an id");
        let newest = NewestOperation { id, kind: OperationKind::Stop, state, cancel_requested };
        let name = "train".parse().expect("a name");
        with_control(kinds.to_vec(), Some(newest), &name).into_iter().map(WorkloadAction::as_str).collect()
    }

    #[test]
    fn resume_and_cancel_are_offered_where_the_requests_are_accepted() {
        let at_rest = [OperationKind::Stop, OperationKind::Decommission];
        assert_eq!(shown(&at_rest, OperationState::Succeeded, false), ["stop", "decommission"]);
        assert_eq!(shown(&at_rest, OperationState::NeedsAttention, false), ["resume", "stop", "decommission"]);
        assert_eq!(shown(&at_rest, OperationState::Cancelled, true), ["resume", "stop", "decommission"]);
        assert_eq!(shown(&[], OperationState::Running, false), ["cancel"]);
        assert_eq!(shown(&[], OperationState::Running, true), [""; 0], "it ends already");
        // An operation of the platform yields to every request.
        assert_eq!(shown(&at_rest, OperationState::Queued, false), ["stop", "decommission", "cancel"]);
    }
}
