//! Certificate authorities: certificates and states in plain, private keys sealed. Each row carries a code that proves
//! that the platform wrote it ([`crate::record_verifier`]) and that covers the sealed key too, so nodes never receive an
//! authority that someone else wrote into the database.

use gpuaas_model::KeyState;

use crate::{
    error::StoreError,
    hint::Change,
    query::{Value, get_blob, get_count, get_text, int, text},
    record::AuthorityRecord,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "authorities";

/// An authority with its sealed private key. The key is empty once the authority is retired or revoked, and the store
/// cannot open it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuthority {
    /// The authority's public record.
    pub authority: AuthorityRecord,
    /// The sealed private key.
    pub key: Vec<u8>,
}

impl StoredAuthority {
    /// Returns the owner that the private key of this authority is sealed for. It does not open for another authority.
    pub fn seal_owner(id: &str) -> Vec<u8> {
        format!("authority.key/{id}").into_bytes()
    }
}

impl Tx {
    /// Inserts an authority.
    pub async fn insert_authority(&mut self, stored: &StoredAuthority) -> Result<(), StoreError> {
        let sql = "insert into authorities (id, state, version, sealed_key, doc, code) values ($1, $2, $3, $4, $5, $6)";
        self.write_authority(sql, &stored.authority, &stored.key).await
    }

    /// Updates an authority. If its new state is retired or revoked, deletes its private key.
    pub async fn update_authority(&mut self, authority: &AuthorityRecord) -> Result<(), StoreError> {
        let before = self.authorities().await?.into_iter().find(|stored| stored.authority.id == authority.id);
        let before = before.ok_or_else(|| StoreError::not_found("authority", &authority.id))?;
        let key = match authority.state {
            KeyState::Staged | KeyState::Active | KeyState::Grace => before.key,
            KeyState::Retired | KeyState::Revoked => Vec::new(),
        };
        let sql = "update authorities set state = $2, version = $3, sealed_key = $4, doc = $5, code = $6 where id = $1";
        self.write_authority(sql, authority, &key).await
    }

    async fn write_authority(
        &mut self,
        sql: &'static str,
        authority: &AuthorityRecord,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let key = self.reseal_value(&StoredAuthority::seal_owner(&authority.id), key).await?;
        let [doc, code] = self.doc_and_code(TABLE, authority, &key).await?;
        let (id, state, version) = (text(&authority.id), text(authority.state), int(authority.version));
        self.execute(sql, vec![id, state, version, Value::Blob(key), doc, code]).await?;
        self.announced.hints.push(Change::Keys);
        Ok(())
    }

    /// Deletes authorities that no key proves, because they would block genuine ones. If none is genuine, deletes
    /// nothing: the sealing key may be the wrong one.
    pub async fn remove_forged_authorities(&mut self) -> Result<(), StoreError> {
        let verified: Vec<String> = self.authorities().await?.into_iter().map(|stored| stored.authority.id).collect();
        if verified.is_empty() {
            return Ok(());
        }
        for id in self.authority_ids().await? {
            if !verified.contains(&id) {
                self.execute("delete from authorities where id = $1", vec![text(id)]).await?;
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Returns every authority that ever existed, oldest first.
    pub async fn authorities(&mut self) -> Result<Vec<StoredAuthority>, StoreError> {
        let rows = self.rows("select id, state, version, sealed_key, doc, code from authorities", Vec::new()).await?;
        let mut authorities = Vec::with_capacity(rows.len());
        for row in &rows {
            let key = get_blob(row, "sealed_key")?;
            let Some(authority) = self.record_verifier.record::<AuthorityRecord>(TABLE, row, &key)? else { continue };
            let matches_row = get_text(row, "id")? == authority.id
                && get_text(row, "state")? == authority.state.as_str()
                && get_count(row, "version")? == authority.version;
            if matches_row {
                authorities.push(StoredAuthority { authority, key });
            } else {
                self.record_verifier.refuse(TABLE, get_text(row, "id")?);
            }
        }
        authorities.sort_by_key(|stored: &StoredAuthority| stored.authority.created_at);
        Ok(authorities)
    }

    /// Returns the ids of all rows, genuine or not. A store has at least one authority once a control plane has opened
    /// it.
    pub async fn authority_ids(&mut self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows("select id from authorities", Vec::new()).await?;
        rows.iter().map(|row| get_text(row, "id")).collect()
    }
}
