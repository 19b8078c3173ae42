//! Task-signing keys: public keys and states in plain, seeds sealed. Each row carries a code that proves that the
//! platform wrote it ([`crate::record_verifier`]) and that covers the sealed seed too.

use gpuaas_model::{KeyState, NodeId, Timestamp};
use uuid::Uuid;

use crate::{
    error::StoreError,
    hint::Change,
    query::{Value, get_blob, get_count, get_text, int, text},
    record::{SessionRecord, SigningKeyRecord},
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "signing_keys";

/// A key with its sealed seed. The seed is empty once the key no longer signs, and the store cannot open it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSigningKey {
    /// The key's public record.
    pub key: SigningKeyRecord,
    /// The sealed seed.
    pub seed: Vec<u8>,
}

impl StoredSigningKey {
    /// Returns the owner that the seed of this key is sealed for. It does not open for another key.
    pub fn seal_owner(key_id: &str) -> Vec<u8> {
        format!("task-signing.key/{key_id}").into_bytes()
    }
}

impl Tx {
    /// Inserts a key.
    pub async fn insert_signing_key(&mut self, stored: &StoredSigningKey) -> Result<(), StoreError> {
        let key = &stored.key;
        let seed = self.reseal_value(&StoredSigningKey::seal_owner(&key.key_id), &stored.seed).await?;
        let [doc, code] = self.doc_and_code(TABLE, key, &seed).await?;
        let sql = "insert into signing_keys (key_id, state, version, seed, doc, code) values ($1, $2, $3, $4, $5, $6)";
        let seed = Value::Blob(seed);
        self.execute(sql, vec![text(&key.key_id), text(key.state), int(key.version), seed, doc, code]).await?;
        self.announced.hints.push(Change::Keys);
        Ok(())
    }

    /// Updates a key. If its new state does not allow signing (`grace`, `retired`, `revoked`), deletes its seed.
    pub async fn update_signing_key(&mut self, key: &SigningKeyRecord) -> Result<(), StoreError> {
        let before = self.signing_keys().await?.into_iter().find(|stored| stored.key.key_id == key.key_id);
        let before = before.ok_or_else(|| StoreError::not_found("signing key", &key.key_id))?;
        let seed = match key.state {
            KeyState::Staged | KeyState::Active => before.seed,
            KeyState::Grace | KeyState::Retired | KeyState::Revoked => Vec::new(),
        };
        let seed = self.reseal_value(&StoredSigningKey::seal_owner(&key.key_id), &seed).await?;
        let [doc, code] = self.doc_and_code(TABLE, key, &seed).await?;
        let values = vec![text(&key.key_id), text(key.state), int(key.version), Value::Blob(seed), doc, code];
        let sql = "update signing_keys set state = $2, version = $3, seed = $4, doc = $5, code = $6 where key_id = $1";
        self.execute(sql, values).await?;
        self.announced.hints.push(Change::Keys);
        Ok(())
    }

    /// Deletes keys that no sealing key proves: they sign nothing and would block genuine ones. Returns how many.
    pub async fn remove_forged_signing_keys(&mut self) -> Result<usize, StoreError> {
        let verified: Vec<String> = self.signing_keys().await?.into_iter().map(|stored| stored.key.key_id).collect();
        let rows = self.rows("select key_id from signing_keys", Vec::new()).await?;
        let mut removed = 0;
        for row in &rows {
            let key_id = get_text(row, "key_id")?;
            if !verified.contains(&key_id) {
                self.execute("delete from signing_keys where key_id = $1", vec![text(key_id)]).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Deletes a setting.
    pub async fn remove_setting(&mut self, name: &str) -> Result<(), StoreError> {
        self.execute("delete from settings where name = $1", vec![text(name)]).await?;
        Ok(())
    }

    /// Records that the agent on this connection received the key set of this version at `at`. Does nothing if the
    /// connection has ended.
    pub async fn set_session_keys(
        &mut self,
        node: NodeId,
        connection: Uuid,
        version: u64,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(session) = self.session(node).await?.filter(|session| session.connection == connection) else {
            return Ok(());
        };
        let held = version.max(session.key_set_version);
        self.put_session(&SessionRecord { key_set_version: held, keys_given_at: Some(at), ..session }).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns every key that ever existed, oldest first.
    pub async fn signing_keys(&mut self) -> Result<Vec<StoredSigningKey>, StoreError> {
        let sql = "select key_id as id, state, version, seed, doc, code from signing_keys order by key_id";
        let rows = self.rows(sql, Vec::new()).await?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            let seed = get_blob(row, "seed")?;
            let Some(key) = self.record_verifier.record::<SigningKeyRecord>(TABLE, row, &seed)? else { continue };
            let matches_row = get_text(row, "id")? == key.key_id
                && get_text(row, "state")? == key.state.as_str()
                && get_count(row, "version")? == key.version;
            if matches_row {
                keys.push(StoredSigningKey { key, seed });
            } else {
                self.record_verifier.refuse(TABLE, get_text(row, "id")?);
            }
        }
        keys.sort_by_key(|stored: &StoredSigningKey| stored.key.created_at);
        Ok(keys)
    }

    /// Returns the version of the key set: the highest version of a key or an authority; 0 if there is none.
    pub async fn key_set_version(&mut self) -> Result<u64, StoreError> {
        let (keys, authorities) = (self.signing_keys().await?, self.authorities().await?);
        let keys = keys.iter().map(|stored| stored.key.version);
        let authorities = authorities.iter().map(|stored| stored.authority.version);
        Ok(keys.chain(authorities).max().unwrap_or(0))
    }

    /// Returns the number of open tasks that this key signed.
    pub async fn open_tasks_signed_by(&mut self, key_id: &str) -> Result<u64, StoreError> {
        let sql = "select count(*) as open from tasks where key_id = $1 and is_open = 1";
        let row = self.row(sql, vec![text(key_id)]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "open"))
    }

    /// Returns every connection that carries a node channel.
    pub async fn sessions(&mut self) -> Result<Vec<SessionRecord>, StoreError> {
        self.list("select node_id, doc from sessions order by node_id", Vec::new()).await
    }
}
