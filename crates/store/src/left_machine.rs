//! Machines that tenants have left. A reimaged machine reports another id, so a machine that reports one of these was not reimaged.

use gpuaas_model::{NodeId, Timestamp};

use crate::{
    error::StoreError,
    query::{Value, get_parsed, text},
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
                   on conflict (machine_id) do update set node_id = excluded.node_id, left_at = excluded.left_at";
        self.execute(sql, vec![text(machine_id), text(node), Value::Int(left_at.as_millis())]).await?;
        Ok(())
    }

    /// Forgets the machine.
    pub async fn forget_left_machine(&mut self, machine_id: &str) -> Result<(), StoreError> {
        self.execute("delete from left_machines where machine_id = $1", vec![text(machine_id)]).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the node, even if it is deleted, that the machine was when a tenant last left it.
    pub async fn node_that_was_left(&mut self, machine_id: &str) -> Result<Option<NodeRecord>, StoreError> {
        let sql = "select node_id from left_machines where machine_id = $1";
        match self.row(sql, vec![text(machine_id)]).await? {
            Some(row) => Ok(Some(self.node(get_parsed(&row, "node_id")?).await?)),
            None => Ok(None),
        }
    }
}
