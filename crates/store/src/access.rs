//! Access grants.

use gpuaas_model::{AccessGrantId, Timestamp, WorkloadId};

use crate::{
    error::StoreError,
    query::{Value, document, text},
    record::AccessGrantRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Inserts a grant.
    pub async fn insert_access_grant(&mut self, grant: &AccessGrantRecord) -> Result<(), StoreError> {
        let values = vec![text(grant.id), text(grant.workload), ends_at(grant), document(grant)?];
        let sql = "insert into access_grants (id, workload_id, ends_at, doc) values ($1, $2, $3, $4)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Marks a grant as revoked; a repeated call keeps the first time.
    pub async fn revoke_access_grant(&mut self, id: AccessGrantId, at: Timestamp) -> Result<(), StoreError> {
        let mut grant = self.access_grant(id).await?;
        grant.revoked_at.get_or_insert(at);
        let sql = "update access_grants set ends_at = $2, doc = $3 where id = $1";
        self.execute(sql, vec![text(id), ends_at(&grant), document(&grant)?]).await?;
        Ok(())
    }
}

/// Returns the value of the column by which old grants are deleted.
fn ends_at(grant: &AccessGrantRecord) -> Value {
    Value::Int(grant.revoked_at.unwrap_or(grant.expires_at).as_millis())
}

impl Reader {
    /// Returns the grant with this id.
    pub async fn access_grant(&mut self, id: AccessGrantId) -> Result<AccessGrantRecord, StoreError> {
        let found = self.find("select id, doc from access_grants where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("access grant", id))
    }

    /// Returns all grants of a workload, including revoked ones, oldest first.
    pub async fn access_grants(&mut self, workload: WorkloadId) -> Result<Vec<AccessGrantRecord>, StoreError> {
        self.list("select id, doc from access_grants where workload_id = $1 order by id", vec![text(workload)]).await
    }
}
