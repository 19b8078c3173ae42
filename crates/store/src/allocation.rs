//! Allocations.

use std::collections::BTreeMap;

use gpuaas_model::{AllocationId, AllocationState, Name, NodeId, ProjectId, WorkloadId};
use serde::Deserialize;

use crate::{
    error::StoreError,
    hint::Change,
    page::Page,
    query::{Row, document, get_parsed, int, list_of, text},
    record::{AllocationRecord, member_name},
    select::Select,
    store::{Reader, Tx},
};

/// Selects allocations; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct AllocationFilter {
    /// Only allocations of this project.
    pub project: Option<ProjectId>,
    /// Only allocations in this state.
    pub state: Option<AllocationState>,
    /// Only allocations of this node.
    pub node: Option<NodeId>,
    /// The page to return.
    pub page: Page,
}

/// The member that uses an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationUser {
    /// Id of the member's workload.
    pub workload: WorkloadId,
    /// Name of the member's workload.
    pub workload_name: Name,
    /// Which member it is; `None` if its row cannot be read.
    pub member: Option<NamedMember>,
}

/// What names a member in its workload, as its document has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NamedMember {
    /// The key of its component in the app, for example `agent`.
    pub component_key: String,
    /// Number within the component, from 1.
    pub ordinal: u32,
}

impl NamedMember {
    /// Returns the name of the member, for example `agent-2`.
    pub fn name(&self) -> String {
        member_name(&self.component_key, self.ordinal)
    }
}

impl Tx {
    /// Inserts an allocation. Fails with [`StoreError::NodeAllocated`] if another open allocation holds the node.
    pub async fn insert_allocation(&mut self, allocation: &AllocationRecord) -> Result<(), StoreError> {
        if self.open_allocation_of(allocation.node).await?.is_some() {
            let node = self.node(allocation.node).await?;
            return Err(StoreError::NodeAllocated { node: node.name.to_string() });
        }
        let values = vec![
            text(allocation.id),
            text(allocation.project),
            text(allocation.node),
            text(allocation.state),
            int(allocation.generation),
            document(allocation)?,
        ];
        let sql =
            "insert into allocations (id, project_id, node_id, state, generation, doc) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Updates an allocation that is still at its given generation, and returns it with the next one. Hints its node,
    /// because access to the node may end with the change.
    pub async fn update_allocation(&mut self, allocation: &AllocationRecord) -> Result<AllocationRecord, StoreError> {
        let next = AllocationRecord { generation: allocation.generation + 1, ..allocation.clone() };
        let values = vec![
            text(allocation.id),
            int(allocation.generation),
            text(next.state),
            int(next.generation),
            document(&next)?,
        ];
        let sql = "update allocations set state = $3, generation = $4, doc = $5 where id = $1 and generation = $2";
        match self.execute(sql, values).await? {
            1 => {
                self.announced.hints.push(Change::Node(allocation.node));
                Ok(next)
            }
            _ => Err(StoreError::Stale { what: "allocation" }),
        }
    }
}

impl Reader {
    /// Returns the allocation with this id.
    pub async fn allocation(&mut self, id: AllocationId) -> Result<AllocationRecord, StoreError> {
        let found = self.find("select id, doc from allocations where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("allocation", id))
    }

    /// Returns the open allocation of the node, if there is one.
    pub async fn open_allocation_of(&mut self, node: NodeId) -> Result<Option<AllocationRecord>, StoreError> {
        let sql = "select id, doc from allocations where node_id = $1 and state not in ('released', 'failed')";
        self.find(sql, vec![text(node)]).await
    }

    /// Returns the allocations with these ids, in this order; leaves out ids that do not exist.
    pub async fn allocations_of_ids(&mut self, ids: &[AllocationId]) -> Result<Vec<AllocationRecord>, StoreError> {
        let sql = "select id, doc from allocations where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        let found = rows.iter().map(|row| row.record::<AllocationRecord>("doc")).collect::<Result<Vec<_>, _>>()?;
        Ok(ids.iter().filter_map(|id| found.iter().find(|allocation| allocation.id == *id).cloned()).collect())
    }

    /// Returns a page of allocations, oldest first.
    pub async fn allocations(&mut self, filter: &AllocationFilter) -> Result<Vec<AllocationRecord>, StoreError> {
        self.records(list(filter)).await
    }

    /// Returns all allocations in this state, oldest first, without a limit.
    pub async fn every_allocation_in(&mut self, state: AllocationState) -> Result<Vec<AllocationRecord>, StoreError> {
        self.list("select id, doc from allocations where state = $1 order by id", vec![text(state)]).await
    }

    /// Returns a page of the open allocations of a project, oldest first.
    pub async fn open_allocations(
        &mut self,
        project: ProjectId,
        page: &Page,
    ) -> Result<Vec<AllocationRecord>, StoreError> {
        let sql = "select id, doc from allocations where project_id = $1 and state not in ('released', 'failed') and id > $2 \
                   order by id limit $3";
        self.list(sql, vec![text(project), page.after(), page.limit()]).await
    }

    /// Returns the open allocations of these nodes; leaves out nodes without one.
    pub async fn open_allocations_of(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<Vec<AllocationRecord>, StoreError> {
        let sql = "select id, doc from allocations where node_id in (select value from json_each($1)) \
                   and state not in ('released', 'failed')";
        let rows = self.rows_with_lists(sql, vec![list_of(nodes)]).await?;
        rows.iter().map(|row| row.record("doc")).collect()
    }

    /// Returns the member that uses the allocation.
    pub async fn allocation_user(&mut self, id: AllocationId) -> Result<Option<AllocationUser>, StoreError> {
        Ok(self.allocation_users(&[id]).await?.remove(&id))
    }

    /// Returns the members that use these allocations. A member whose document cannot be read has no name here and fails neither this nor
    /// a list of allocations or nodes.
    pub async fn allocation_users(
        &mut self,
        ids: &[AllocationId],
    ) -> Result<BTreeMap<AllocationId, AllocationUser>, StoreError> {
        let sql = "select members.id, members.doc, members.allocation_id, members.workload_id, workloads.name from members \
                   join workloads on workloads.id = members.workload_id \
                   where members.allocation_id in (select value from json_each($1)) and members.state <> 'removed'";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| Ok((get_parsed(row, "allocation_id")?, user(row)?))).collect()
    }
}

fn user(row: &Row) -> Result<AllocationUser, StoreError> {
    let member = row.record_of::<NamedMember>("members", "doc");
    if let Err(error) = &member {
        tracing::warn!(%error, "the member that uses an allocation cannot be read: it is shown without its name");
    }
    Ok(AllocationUser {
        workload: get_parsed(row, "workload_id")?,
        workload_name: get_parsed(row, "name")?,
        member: member.ok(),
    })
}

/// Returns the statement for a page of allocations.
pub(crate) fn list(filter: &AllocationFilter) -> Select {
    Select::all("id, doc from allocations")
        .equal("project_id", filter.project)
        .equal("state", filter.state)
        .equal("node_id", filter.node)
        .page(&filter.page)
}
