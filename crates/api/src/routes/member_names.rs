//! Members with the names of their machines and the operations that can be requested for them.

use gpuaas_api_types::Member;
use gpuaas_engine::commands::actions;
use gpuaas_model::{MemberPlace, Name, WorkloadId};
use gpuaas_store::{MemberRecord, Reader, StoreError};

use crate::{problem::ApiProblem, state::ApiState, views};

/// Returns the members of a workload.
pub(super) async fn members(state: &ApiState, reader: &mut Reader, id: WorkloadId) -> Result<Vec<Member>, ApiProblem> {
    let members = reader.members_of(id).await?;
    named(state, reader, id, members).await
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
    let with_names = records.into_iter().zip(machines).map(|(member, machine)| {
        let actions = actions.remove(&member.id).unwrap_or_default();
        views::member(member, &machine, actions)
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
