//! Keys that sign tasks: public halves and states for everybody, seeds sealed.

use gpuaas_model::{KeyState, NodeId};
use uuid::Uuid;

use crate::{
    error::StoreError,
    query::{Value, document, get_blob, get_count, get_text, int, text},
    record::{SessionRecord, SigningKeyRecord},
    store::{Reader, Tx},
};

/// A key with its seed, which opens only with a key that is not in the store; empty once the key is done.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSigningKey {
    /// The key.
    pub key: SigningKeyRecord,
    /// The sealed seed.
    pub seed: Vec<u8>,
}

impl Tx {
    /// Adds a key.
    pub async fn insert_signing_key(&mut self, stored: &StoredSigningKey) -> Result<(), StoreError> {
        let key = &stored.key;
        let sql = "insert into signing_keys (key_id, state, version, seed, doc) values ($1, $2, $3, $4, $5)";
        let seed = Value::Blob(stored.seed.clone());
        self.execute(sql, vec![text(&key.key_id), text(key.state), int(key.version), seed, document(key)?]).await?;
        Ok(())
    }

    /// Writes a key's new state. Whatever is not used to sign any more loses its seed for good.
    pub async fn update_signing_key(&mut self, key: &SigningKeyRecord) -> Result<(), StoreError> {
        let values = vec![text(&key.key_id), text(key.state), int(key.version), document(key)?];
        let sql = "update signing_keys set state = $2, version = $3, doc = $4 where key_id = $1";
        if self.execute(sql, values).await? == 0 {
            return Err(StoreError::not_found("signing key", &key.key_id));
        }
        if matches!(key.state, KeyState::Grace | KeyState::Retired | KeyState::Revoked) {
            let values = vec![text(&key.key_id), Value::Blob(Vec::new())];
            self.execute("update signing_keys set seed = $2 where key_id = $1", values).await?;
        }
        Ok(())
    }

    /// Removes a setting, once what it held lies elsewhere.
    pub async fn remove_setting(&mut self, name: &str) -> Result<(), StoreError> {
        self.execute("delete from settings where name = $1", vec![text(name)]).await?;
        Ok(())
    }

    /// Records that the agent at the other end of a connection holds the key set of that version. A connection that ended meanwhile is let be.
    pub async fn set_session_keys(&mut self, node: NodeId, connection: Uuid, version: u64) -> Result<(), StoreError> {
        let Some(session) = self.session(node).await?.filter(|session| session.connection == connection) else {
            return Ok(());
        };
        let held = version.max(session.key_set_version);
        self.put_session(&SessionRecord { key_set_version: held, ..session }).await?;
        Ok(())
    }
}

impl Reader {
    /// Every key there ever was, oldest first.
    pub async fn signing_keys(&mut self) -> Result<Vec<StoredSigningKey>, StoreError> {
        let rows = self.rows("select seed, doc from signing_keys order by key_id", Vec::new()).await?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            let key: SigningKeyRecord = serde_json::from_str(&get_text(row, "doc")?)?;
            keys.push(StoredSigningKey { key, seed: get_blob(row, "seed")? });
        }
        keys.sort_by_key(|stored| stored.key.created_at);
        Ok(keys)
    }

    /// The version of the key set; 0 before there is a key.
    pub async fn key_set_version(&mut self) -> Result<u64, StoreError> {
        let row = self.row("select coalesce(max(version), 0) as version from signing_keys", Vec::new()).await?;
        row.map_or(Ok(0), |row| get_count(&row, "version"))
    }

    /// Tasks that a key has signed and that have not ended.
    pub async fn open_tasks_signed_by(&mut self, key_id: &str) -> Result<u64, StoreError> {
        let sql = "select count(*) as open from tasks where key_id = $1 and is_open = 1";
        let row = self.row(sql, vec![text(key_id)]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "open"))
    }

    /// Every connection that carries a node's channel.
    pub async fn sessions(&mut self) -> Result<Vec<SessionRecord>, StoreError> {
        self.list("select doc from sessions order by node_id", Vec::new()).await
    }
}
