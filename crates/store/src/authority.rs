//! Certificate authorities: certificates and states for everybody, keys sealed. Each row is proven to be the platform's ([`crate::genuine`]), so that no
//! node ever hears of an authority that somebody wrote into the database; the proof covers the sealed key too.

use gpuaas_model::KeyState;

use crate::{
    error::StoreError,
    query::{Value, get_blob, get_count, get_text, int, text},
    record::AuthorityRecord,
    store::{Change, Reader, Tx},
};

pub(crate) const TABLE: &str = "authorities";

/// An authority with its key, which opens only with a key that is not in the store; empty once the authority is retired.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuthority {
    /// The authority.
    pub authority: AuthorityRecord,
    /// The sealed key.
    pub key: Vec<u8>,
}

impl StoredAuthority {
    /// What the key of the authority of that id is sealed for: it opens as no other's.
    pub fn sealed_for(id: &str) -> Vec<u8> {
        format!("authority.key/{id}").into_bytes()
    }
}

impl Tx {
    /// Adds an authority.
    pub async fn insert_authority(&mut self, stored: &StoredAuthority) -> Result<(), StoreError> {
        let sql = "insert into authorities (id, state, version, sealed_key, doc, code) values ($1, $2, $3, $4, $5, $6)";
        self.write_authority(sql, &stored.authority, &stored.key).await
    }

    /// Writes an authority's new state. One that is retired loses its key for good.
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
        let key = self.sealed_now(&StoredAuthority::sealed_for(&authority.id), key).await?;
        let [doc, code] = self.proven(TABLE, authority, &key).await?;
        let (id, state, version) = (text(&authority.id), text(authority.state), int(authority.version));
        self.execute(sql, vec![id, state, version, Value::Blob(key), doc, code]).await?;
        self.hints.push(Change::Keys);
        Ok(())
    }

    /// Removes authorities that nothing proves: they would stand in the way of those that do. Where none is proven, the
    /// sealing key may be the wrong one, and nothing is removed.
    pub async fn remove_forged_authorities(&mut self) -> Result<(), StoreError> {
        let genuine: Vec<String> = self.authorities().await?.into_iter().map(|stored| stored.authority.id).collect();
        if genuine.is_empty() {
            return Ok(());
        }
        for id in self.authority_ids().await? {
            if !genuine.contains(&id) {
                self.execute("delete from authorities where id = $1", vec![text(id)]).await?;
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Every authority there ever was, oldest first.
    pub async fn authorities(&mut self) -> Result<Vec<StoredAuthority>, StoreError> {
        let rows = self.rows("select id, state, version, sealed_key, doc, code from authorities", Vec::new()).await?;
        let mut authorities = Vec::with_capacity(rows.len());
        for row in &rows {
            let key = get_blob(row, "sealed_key")?;
            let Some(authority) = self.genuine.record::<AuthorityRecord>(TABLE, row, &key)? else { continue };
            let is_in_its_row = get_text(row, "id")? == authority.id
                && get_text(row, "state")? == authority.state.as_str()
                && get_count(row, "version")? == authority.version;
            if is_in_its_row {
                authorities.push(StoredAuthority { authority, key });
            } else {
                self.genuine.refuse(TABLE, get_text(row, "id")?);
            }
        }
        authorities.sort_by_key(|stored: &StoredAuthority| stored.authority.created_at);
        Ok(authorities)
    }

    /// The ids of all rows, proven or not: a store has one authority at least once it was opened by a control plane.
    pub async fn authority_ids(&mut self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows("select id from authorities", Vec::new()).await?;
        rows.iter().map(|row| get_text(row, "id")).collect()
    }
}
