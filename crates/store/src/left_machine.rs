//! Machines that tenants have left. A reimaged machine reports another id, so a machine that reports one of these was not reimaged.
//!
//! A tenant chooses what its machine reports: the id of another tenant's machine adds a row and never replaces one.

use gpuaas_model::{NodeId, Timestamp};

use crate::{
    error::StoreError,
    query::{Value, text},
    record::NodeRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Remembers that a tenant left this machine as this node.
    pub async fn remember_left_machine(
        &mut self,
        machine_id: &str,
        node: NodeId,
        left_at: Timestamp,
    ) -> Result<(), StoreError> {
        let sql = "insert into left_machines (machine_id, node_id, left_at) values ($1, $2, $3) \
                   on conflict (machine_id, node_id) do update set left_at = excluded.left_at";
        self.execute(sql, vec![text(machine_id), text(node), Value::Int(left_at.as_millis())]).await?;
        Ok(())
    }

    /// Forgets that a tenant left this machine as this node.
    pub async fn forget_left_machine(&mut self, machine_id: &str, node: NodeId) -> Result<(), StoreError> {
        let sql = "delete from left_machines where machine_id = $1 and node_id = $2";
        self.execute(sql, vec![text(machine_id), text(node)]).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the nodes, deleted ones too, that the machine was when tenants left it, the last one first.
    pub async fn nodes_that_were_left(&mut self, machine_id: &str) -> Result<Vec<NodeRecord>, StoreError> {
        let sql = "select nodes.id, nodes.doc from left_machines join nodes on nodes.id = left_machines.node_id \
                   where left_machines.machine_id = $1 order by left_machines.left_at desc, nodes.id";
        let rows = self.rows(sql, vec![text(machine_id)]).await?;
        rows.iter().map(|row| row.record("doc")).collect()
    }
}
