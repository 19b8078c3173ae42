//! Members with the names of their machines and the operations that can be requested for them.

use std::collections::BTreeSet;

use gpuaas_api_types::Member;
use gpuaas_engine::commands::actions;
use gpuaas_model::{MemberId, MemberPlace, MemberState, Name, Timestamp, WorkloadId};
use gpuaas_store::{MemberRecord, Reader, StoreError};

use crate::{problem::ApiProblem, state::ApiState, views};

/// Most removed members that a workload shows: more than the largest app places, so that a decommissioned workload shows all that it had.
const REMOVED_MAX: usize = 64;

/// Returns the members that a workload shows: all present ones, and the [`REMOVED_MAX`] that were removed last.
pub(super) async fn members(state: &ApiState, reader: &mut Reader, id: WorkloadId) -> Result<Vec<Member>, ApiProblem> {
    let members = without_earlier(reader.members_of(id).await?);
    named(state, reader, id, members).await
}

/// Leaves out members that were removed before the last [`REMOVED_MAX`]: each replacement leaves one.
fn without_earlier(mut members: Vec<MemberRecord>) -> Vec<MemberRecord> {
    let removed = members.iter().filter(|member| member.state == MemberState::Removed);
    let mut removed: Vec<(Timestamp, MemberId)> = removed.map(|member| (member.updated_at, member.id)).collect();
    removed.sort_unstable();
    let earlier = removed.len().saturating_sub(REMOVED_MAX);
    let earlier: BTreeSet<MemberId> = removed.into_iter().take(earlier).map(|(_, id)| id).collect();
    members.retain(|member| !earlier.contains(&member.id));
    members
}

/// Converts members of a workload, with the names of their nodes.
pub(super) async fn named(
    state: &ApiState,
    reader: &mut Reader,
    id: WorkloadId,
    records: Vec<MemberRecord>,
) -> Result<Vec<Member>, ApiProblem> {
    let machines = machine_names(reader, &records).await?;
    let mut actions = actions::of_members(&state.engine, reader, id).await?;
    let workload = reader.workload(id).await?.name;
    let open = reader.newest_operation(id).await?.filter(|operation| !operation.state.is_final());
    let steps = match &open {
        Some(open) => reader.steps_of(open.id).await?,
        None => Vec::new(),
    };
    let with_names = records.into_iter().zip(machines).map(|(member, machine)| {
        let actions = actions.remove(&member.id).unwrap_or_default();
        views::member(member, (&workload, &machine), (open.as_ref(), steps.as_slice()), actions)
    });
    Ok(with_names.collect())
}

/// Returns the names of the machines that members run on, in their order.
pub(super) async fn machine_names(reader: &mut Reader, members: &[MemberRecord]) -> Result<Vec<Name>, StoreError> {
    let names = reader.node_names(members.iter().filter_map(|member| member.place.node())).await?;
    let of = |member: &MemberRecord| match &member.place {
        MemberPlace::Allocation { node, .. } => {
            names.get(node).cloned().ok_or_else(|| StoreError::NotFound { what: "node", id: node.to_string() })
        }
        MemberPlace::External { machine, .. } => Ok(machine.clone()),
    };
    members.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn member(number: u32, state: MemberState) -> MemberRecord {
        let id = MemberId::from_uuid(Uuid::from_u128(number.into()));
        let machine = "edge-1".parse().expect("a name");
        let place = MemberPlace::External { machine, address: "192.0.2.7".to_owned() };
        let (workload, at) = (WorkloadId::from_uuid(Uuid::nil()), Timestamp::from_millis(number.into()));
        MemberRecord { state, ..MemberRecord::pending(id, workload, ("agent".to_owned(), number), place, at) }
    }

    #[test]
    fn workload_shows_its_members_and_those_that_were_removed_last() {
        let since = Timestamp::from_millis(1);
        let removed = (2..=101).map(|number| member(number, MemberState::Removed));
        let shown = without_earlier(std::iter::once(member(1, MemberState::Ready { since })).chain(removed).collect());
        let ordinals: Vec<u32> = shown.iter().map(|member| member.ordinal).collect();
        assert_eq!(ordinals, std::iter::once(1).chain(38..=101).collect::<Vec<_>>());
        assert_eq!(without_earlier(shown.clone()), shown);
    }
}
