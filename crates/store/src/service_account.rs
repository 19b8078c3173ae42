//! Service accounts of projects. Each row carries a code that proves that the platform wrote it ([`crate::record_verifier`]).

use gpuaas_model::{Name, ProjectId, Timestamp};

use crate::{
    error::StoreError,
    page::Page,
    query::{Row, Value, get_int, get_text, text},
    record::{ServiceAccountRecord, TokenRecord},
    select::Select,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "service_accounts";

impl Tx {
    /// Inserts a service account, replacing a forged row with the same name. Fails with [`StoreError::NameTaken`] if an
    /// account that is not deleted has the name.
    pub async fn insert_service_account(&mut self, account: &ServiceAccountRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, account, &[]).await?;
        self.remove_forged_service_account(account.project, &account.name).await?;
        let values = vec![text(account.id), text(account.project), text(&account.name), doc, code];
        let sql = "insert into service_accounts (id, project_id, name, deleted_at, doc, code) \
                   values ($1, $2, $3, 0, $4, $5) on conflict do nothing";
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(StoreError::NameTaken { what: "service account", name: account.name.to_string() }),
        }
    }

    /// Deletes a service account and revokes its tokens, which it returns. A repeated call changes nothing.
    pub async fn delete_service_account(
        &mut self,
        account: &ServiceAccountRecord,
        at: Timestamp,
    ) -> Result<Vec<TokenRecord>, StoreError> {
        let deleted = ServiceAccountRecord { deleted_at: Some(at), ..account.clone() };
        let [doc, code] = self.doc_and_code(TABLE, &deleted, &[]).await?;
        let values = vec![text(account.id), Value::Int(deleted_at(&deleted)), doc, code];
        let sql = "update service_accounts set deleted_at = $2, doc = $3, code = $4 where id = $1 and deleted_at = 0";
        if self.execute(sql, values).await? == 0 {
            return Ok(Vec::new());
        }
        let held = self.tokens_of_service_account(account.id).await?;
        let mut revoked = Vec::new();
        for token in held.into_iter().filter(|token| token.revoked_at.is_none()) {
            revoked.push(self.revoke_token(token.id, at).await?);
        }
        Ok(revoked)
    }

    /// Deletes a forged row that would block this name for a new account.
    async fn remove_forged_service_account(&mut self, project: ProjectId, name: &Name) -> Result<(), StoreError> {
        let Some(row) = self.row(ACTIVE_BY_NAME, vec![text(project), text(name)]).await? else { return Ok(()) };
        let id = get_text(&row, "id")?;
        if self.verified_service_accounts(Some(row))?.is_empty() {
            self.execute("delete from service_accounts where id = $1", vec![text(id)]).await?;
        }
        Ok(())
    }
}

/// Selects the service account with this name in a project that is not deleted.
const ACTIVE_BY_NAME: &str = "select id, project_id, name, deleted_at, doc, code from service_accounts \
                              where project_id = $1 and name = $2 and deleted_at = 0";

impl Reader {
    /// Returns the service account with this name in a project; deleted ones are not found.
    pub async fn service_account_by_name(
        &mut self,
        project: ProjectId,
        name: &Name,
    ) -> Result<ServiceAccountRecord, StoreError> {
        let row = self.row(ACTIVE_BY_NAME, vec![text(project), text(name)]).await?;
        let found = self.verified_service_accounts(row)?.pop();
        found.ok_or_else(|| StoreError::not_found("service account", name))
    }

    /// Returns a page of the service accounts of a project, without deleted ones, oldest first.
    pub async fn service_accounts(
        &mut self,
        project: ProjectId,
        page: &Page,
    ) -> Result<Vec<ServiceAccountRecord>, StoreError> {
        self.verified_page(TABLE, &list(project), page, matches_row).await
    }

    fn verified_service_accounts(&self, row: Option<Row>) -> Result<Vec<ServiceAccountRecord>, StoreError> {
        self.verified_records(TABLE, row, matches_row)
    }
}

/// Returns the value of the column `deleted_at`: milliseconds since the epoch; 0 while the account exists.
fn deleted_at(account: &ServiceAccountRecord) -> i64 {
    account.deleted_at.map_or(0, Timestamp::as_millis)
}

/// Returns whether the columns used in queries agree with the record.
pub(crate) fn matches_row(account: &ServiceAccountRecord, row: &Row) -> Result<bool, StoreError> {
    Ok(get_text(row, "id")? == account.id.to_string()
        && get_text(row, "project_id")? == account.project.to_string()
        && get_text(row, "name")? == account.name.to_string()
        && get_int(row, "deleted_at")? == deleted_at(account))
}

/// Returns the statement for the service accounts of a project that are not deleted.
pub(crate) fn list(project: ProjectId) -> Select {
    Select::all("id, project_id, name, deleted_at, doc, code from service_accounts")
        .equal("project_id", Some(project))
        .only("deleted_at = 0")
}
