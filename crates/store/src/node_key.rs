//! Keys of node certificates, identified by the digest of the public key.

use std::collections::BTreeMap;

use gpuaas_model::{EnrolledNode, NodeId, Timestamp};

use crate::{
    error::StoreError,
    query::{Value, get_count, get_int, get_parsed, int, text},
    record::NodeKeyRecord,
    store::{Reader, Tx},
};

/// Newest keys remembered per node. A certificate is renewed every 16 hours with a new key, so 256 keys cover about 170
/// days; an agent has long replaced any key that is forgotten.
const KEYS_PER_NODE_MAX: i64 = 256;

impl Tx {
    /// Stores a key and forgets the node's oldest ones. Fails with [`StoreError::KeyReused`] if the key was already
    /// certified for any node.
    pub async fn insert_node_key(&mut self, key: &NodeKeyRecord) -> Result<(), StoreError> {
        if self.is_node_key(&key.sha256).await? {
            return Err(StoreError::KeyReused);
        }
        self.delete_old_keys(key.node).await?;
        let values = vec![text(&key.sha256), text(key.node), int(key.epoch), Value::Int(key.created_at.as_millis())];
        let sql = "insert into node_keys (sha256, node_id, epoch, created_at) values ($1, $2, $3, $4)";
        self.execute(sql, values).await?;
        Ok(())
    }

    async fn delete_old_keys(&mut self, node: NodeId) -> Result<(), StoreError> {
        let sql =
            "select sha256, created_at from node_keys where node_id = $1 order by created_at desc limit 1 offset $2";
        let Some(row) = self.row(sql, vec![text(node), Value::Int(KEYS_PER_NODE_MAX - 1)]).await? else {
            return Ok(());
        };
        let oldest = get_int(&row, "created_at")?;
        let values = vec![text(node), Value::Int(oldest)];
        self.execute("delete from node_keys where node_id = $1 and created_at <= $2", values).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns when the newest certificate of each enrollment (a node at an epoch) was issued.
    pub async fn newest_node_keys(&mut self) -> Result<BTreeMap<EnrolledNode, Timestamp>, StoreError> {
        let sql = "select node_id, epoch, max(created_at) as newest from node_keys group by node_id, epoch";
        let rows = self.rows(sql, Vec::new()).await?;
        rows.iter()
            .map(|row| {
                let enrolled = EnrolledNode { node: get_parsed(row, "node_id")?, epoch: get_count(row, "epoch")? };
                Ok((enrolled, Timestamp::from_millis(get_int(row, "newest")?)))
            })
            .collect()
    }

    /// Returns when a node's newest certificate was issued, as far as its keys are remembered.
    pub async fn newest_key_of(&mut self, node: NodeId) -> Result<Option<Timestamp>, StoreError> {
        let sql = "select created_at from node_keys where node_id = $1 order by created_at desc limit 1";
        let row = self.row(sql, vec![text(node)]).await?;
        row.map(|row| Ok(Timestamp::from_millis(get_int(&row, "created_at")?))).transpose()
    }

    /// Returns whether a certificate was already issued for this key.
    pub async fn is_node_key(&mut self, sha256: &str) -> Result<bool, StoreError> {
        Ok(self.row("select node_id from node_keys where sha256 = $1", vec![text(sha256)]).await?.is_some())
    }
}
