//! Nodes.

use std::collections::BTreeMap;

use gpuaas_model::{Connectivity, Name, NodeId, NodeState};

use crate::{
    deleted::{deleted_at_column, get_name, name_column},
    error::StoreError,
    hint::Change,
    page::Page,
    query::{document, get_count, get_parsed, int, list_of, text},
    record::NodeRecord,
    select::Select,
    store::{Reader, Tx},
};

/// Selects nodes; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct NodeFilter {
    /// Only nodes in this state.
    pub state: Option<NodeState>,
    /// Only nodes with this connectivity.
    pub connectivity: Option<Connectivity>,
    /// The page to return.
    pub page: Page,
}

impl Tx {
    /// Inserts a node. Fails with [`StoreError::NameTaken`] if the name is in use.
    pub async fn insert_node(&mut self, node: &NodeRecord) -> Result<(), StoreError> {
        if self.node_by_name(node.name.as_str()).await?.is_some() {
            return Err(StoreError::NameTaken { what: "node", name: node.name.to_string() });
        }
        let values = vec![
            text(node.id),
            text(&node.name),
            text(node.state),
            text(node.connectivity),
            int(node.generation),
            document(node)?,
        ];
        let sql = "insert into nodes (id, name, state, connectivity, generation, doc) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Updates a node that is still at its given generation, and returns it with the next one. Hints the node, so that
    /// the replica with its connection reacts.
    pub async fn update_node(&mut self, node: &NodeRecord) -> Result<NodeRecord, StoreError> {
        let next = NodeRecord { generation: node.generation + 1, ..node.clone() };
        let values = vec![
            text(node.id),
            int(node.generation),
            text(next.state),
            text(next.connectivity),
            int(next.generation),
            document(&next)?,
            text(name_column(&next.name, next.id, next.deleted_at)),
            deleted_at_column(next.deleted_at),
        ];
        let sql = "update nodes set state = $3, connectivity = $4, generation = $5, doc = $6, name = $7, deleted_at = $8 \
                   where id = $1 and generation = $2";
        match self.execute(sql, values).await? {
            1 => {
                self.announced.hints.push(Change::Node(node.id));
                Ok(next)
            }
            _ => Err(StoreError::Stale { what: "node" }),
        }
    }
}

impl Reader {
    /// Returns the node with this id, even if it is deleted.
    pub async fn node(&mut self, id: NodeId) -> Result<NodeRecord, StoreError> {
        let found = self.find("select id, doc from nodes where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("node", id))
    }

    /// Returns the nodes with these ids; leaves out ids that do not exist.
    pub async fn nodes_of_ids(
        &mut self,
        ids: impl IntoIterator<Item = NodeId>,
    ) -> Result<BTreeMap<NodeId, NodeRecord>, StoreError> {
        let sql = "select id, doc from nodes where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| row.record("doc").map(|node: NodeRecord| (node.id, node))).collect()
    }

    /// Returns the names of the nodes with these ids, of deleted ones too.
    pub async fn node_names(
        &mut self,
        ids: impl IntoIterator<Item = NodeId>,
    ) -> Result<BTreeMap<NodeId, Name>, StoreError> {
        let sql = "select id, name from nodes where id in (select value from json_each($1))";
        let rows = self.rows_with_lists(sql, vec![list_of(ids)]).await?;
        rows.iter().map(|row| Ok((get_parsed(row, "id")?, get_name(row)?))).collect()
    }

    /// Returns the node with this name, if there is one.
    pub async fn node_by_name(&mut self, name: &str) -> Result<Option<NodeRecord>, StoreError> {
        self.find("select id, doc from nodes where name = $1", vec![text(name)]).await
    }

    /// Returns a page of nodes, without deleted ones, oldest first.
    pub async fn nodes(&mut self, filter: &NodeFilter) -> Result<Vec<NodeRecord>, StoreError> {
        let all = Select::all("id, doc from nodes").only("deleted_at = 0").equal("state", filter.state);
        self.records(all.equal("connectivity", filter.connectivity).page(&filter.page)).await
    }

    /// Returns all nodes for which `predicate` is true, oldest first, without a limit.
    pub async fn every_node(&mut self, predicate: impl Fn(&NodeRecord) -> bool) -> Result<Vec<NodeRecord>, StoreError> {
        let (mut found, mut filter) = (Vec::new(), NodeFilter::default());
        loop {
            let page = self.nodes(&filter).await?;
            let Some(last) = page.last() else { return Ok(found) };
            filter.page.after = Some(last.id.to_string());
            found.extend(page.into_iter().filter(&predicate));
        }
    }

    /// Returns the number of nodes by connectivity.
    pub async fn node_counts(&mut self) -> Result<BTreeMap<Connectivity, u64>, StoreError> {
        let sql = "select connectivity, count(*) as n from nodes where deleted_at = 0 group by connectivity";
        let rows = self.rows(sql, Vec::new()).await?;
        rows.iter().map(|row| Ok((get_parsed(row, "connectivity")?, get_count(row, "n")?))).collect()
    }
}
