//! Programs that act for a project.

use gpuaas_model::{Name, ProjectId, Timestamp};

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, document, text},
    record::{ServiceAccountRecord, TokenRecord},
    store::{Reader, Tx},
};

impl Tx {
    /// Adds a service account; its name is free again once it is deleted.
    pub async fn insert_service_account(&mut self, account: &ServiceAccountRecord) -> Result<(), StoreError> {
        let values = vec![text(account.id), text(account.project), text(&account.name), document(account)?];
        let sql = "insert into service_accounts (id, project_id, name, deleted_at, doc) values ($1, $2, $3, 0, $4) \
                   on conflict do nothing";
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(StoreError::NameTaken { what: "service account", name: account.name.to_string() }),
        }
    }

    /// Deletes a service account and withdraws its tokens; returns those. Deleting it again changes nothing.
    pub async fn delete_service_account(
        &mut self,
        account: &ServiceAccountRecord,
        at: Timestamp,
    ) -> Result<Vec<TokenRecord>, StoreError> {
        let deleted = ServiceAccountRecord { deleted_at: Some(at), ..account.clone() };
        let values = vec![text(account.id), Value::Int(at.as_millis()), document(&deleted)?];
        let sql = "update service_accounts set deleted_at = $2, doc = $3 where id = $1 and deleted_at = 0";
        if self.execute(sql, values).await? == 0 {
            return Ok(Vec::new());
        }
        let held = self.tokens_of_service_account(account.id).await?;
        let mut withdrawn = Vec::new();
        for token in held.into_iter().filter(|token| token.revoked_at.is_none()) {
            withdrawn.push(self.revoke_token(token.id, at).await?);
        }
        Ok(withdrawn)
    }
}

impl Reader {
    /// The living service account of that name in a project.
    pub async fn service_account_by_name(
        &mut self,
        project: ProjectId,
        name: &Name,
    ) -> Result<ServiceAccountRecord, StoreError> {
        let sql = "select doc from service_accounts where project_id = $1 and name = $2 and deleted_at = 0";
        let found = self.find(sql, vec![text(project), text(name)]).await?;
        found.ok_or_else(|| StoreError::not_found("service account", name))
    }

    /// The living service accounts of a project, oldest first.
    pub async fn service_accounts(
        &mut self,
        project: ProjectId,
        page: &Page,
    ) -> Result<Vec<ServiceAccountRecord>, StoreError> {
        let sql = "select doc from service_accounts where project_id = $1 and deleted_at = 0 and id > $2 \
                   order by id limit $3";
        self.list(sql, vec![text(project), page.after(), page.limit()]).await
    }
}
