//! Delivered access to clusters.

use gpuaas_model::{AccessGrantId, Timestamp, WorkloadId};

use crate::{
    error::StoreError,
    query::{document, text},
    record::AccessGrantRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Adds a grant.
    pub async fn insert_access_grant(&mut self, grant: &AccessGrantRecord) -> Result<(), StoreError> {
        let values = vec![text(grant.id), text(grant.workload), document(grant)?];
        self.execute("insert into access_grants (id, workload_id, doc) values ($1, $2, $3)", values).await?;
        Ok(())
    }

    /// Marks a grant as withdrawn; the first time counts.
    pub async fn revoke_access_grant(&mut self, id: AccessGrantId, at: Timestamp) -> Result<(), StoreError> {
        let mut grant = self.access_grant(id).await?;
        grant.revoked_at.get_or_insert(at);
        self.execute("update access_grants set doc = $2 where id = $1", vec![text(id), document(&grant)?]).await?;
        Ok(())
    }
}

impl Reader {
    /// The grant of that id.
    pub async fn access_grant(&mut self, id: AccessGrantId) -> Result<AccessGrantRecord, StoreError> {
        let found = self.find("select id, doc from access_grants where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("access grant", id))
    }

    /// A workload's grants, withdrawn ones too, oldest first.
    pub async fn access_grants(&mut self, workload: WorkloadId) -> Result<Vec<AccessGrantRecord>, StoreError> {
        self.list("select id, doc from access_grants where workload_id = $1 order by id", vec![text(workload)]).await
    }
}
