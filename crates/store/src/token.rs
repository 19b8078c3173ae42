//! API tokens, found by the digest of their secret. Each row carries a code that proves that the platform wrote it
//! ([`crate::record_verifier`]).

use gpuaas_model::{ProjectId, ServiceAccountId, Timestamp, TokenId};

use crate::{
    error::StoreError,
    hint::Change,
    page::Page,
    query::{Row, Value, get_count, get_int, get_text, text, text_or_empty},
    record::TokenRecord,
    select::Select,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "tokens";

impl Tx {
    /// Inserts a token.
    pub async fn insert_token(&mut self, token: &TokenRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, token, &[]).await?;
        let values = vec![
            text(token.id),
            text(&token.sha256),
            text_or_empty(token.project),
            text_or_empty(token.service_account),
            Value::Int(ends_at(token)),
            doc,
            code,
        ];
        let sql = "insert into tokens (id, sha256, project_id, service_account_id, ends_at, doc, code) \
                   values ($1, $2, $3, $4, $5, $6, $7)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Revokes a token; a repeated call changes nothing.
    pub async fn revoke_token(&mut self, id: TokenId, at: Timestamp) -> Result<TokenRecord, StoreError> {
        let mut token = self.token(id).await?;
        if token.revoked_at.is_some() {
            return Ok(token);
        }
        token.revoked_at = Some(at);
        let [doc, code] = self.doc_and_code(TABLE, &token, &[]).await?;
        let values = vec![text(id), Value::Int(ends_at(&token)), doc, code];
        self.execute("update tokens set ends_at = $2, doc = $3, code = $4 where id = $1", values).await?;
        self.announced.hints.push(Change::Token(id));
        Ok(token)
    }

    /// Deletes every token. Returns how many were valid at `at`.
    pub async fn delete_tokens(&mut self, at: Timestamp) -> Result<u64, StoreError> {
        let is_valid = |token: &TokenRecord| token.revoked_at.is_none() && token.expires_at.is_none_or(|end| end > at);
        let ended = self.all_tokens().await?.iter().filter(|token| is_valid(token)).count();
        // All rows with one statement, including forged ones, so that none can block a restore.
        self.execute("delete from tokens", Vec::new()).await?;
        Ok(ended as u64)
    }
}

/// Returns the value of the column by which tokens are counted and purged; 0 if the token never ends.
fn ends_at(token: &TokenRecord) -> i64 {
    token.revoked_at.or(token.expires_at).map_or(0, Timestamp::as_millis)
}

impl Reader {
    /// Returns the number of tokens of a project, or of the platform, that are valid at `at`. Counts by columns,
    /// without verifying codes.
    pub async fn valid_token_count(&mut self, project: Option<ProjectId>, at: Timestamp) -> Result<u64, StoreError> {
        let sql = "select count(*) as good from tokens where project_id = $1 and (ends_at = 0 or ends_at > $2)";
        let row = self.row(sql, vec![text_or_empty(project), Value::Int(at.as_millis())]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "good"))
    }

    /// Returns the token with this id.
    pub async fn token(&mut self, id: TokenId) -> Result<TokenRecord, StoreError> {
        let row = self
            .row(
                "select id, sha256, project_id, service_account_id, ends_at, doc, code from tokens where id = $1",
                vec![text(id)],
            )
            .await?;
        self.verified_tokens(row)?.pop().ok_or_else(|| StoreError::not_found("token", id))
    }

    /// Returns the token whose secret has this digest, even if it is revoked or expired.
    pub async fn token_by_sha256(&mut self, sha256: &str) -> Result<Option<TokenRecord>, StoreError> {
        let row = self
            .row(
                "select id, sha256, project_id, service_account_id, ends_at, doc, code from tokens where sha256 = $1",
                vec![text(sha256)],
            )
            .await?;
        Ok(self.verified_tokens(row)?.pop())
    }

    /// Returns every genuine token.
    pub async fn all_tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = self
            .rows(
                "select id, sha256, project_id, service_account_id, ends_at, doc, code from tokens order by id",
                Vec::new(),
            )
            .await?;
        self.verified_tokens(rows)
    }

    /// Returns a page of tokens, of all or of one project, oldest first.
    pub async fn tokens(&mut self, project: Option<ProjectId>, page: &Page) -> Result<Vec<TokenRecord>, StoreError> {
        self.verified_page(TABLE, &list(project), page, matches_row).await
    }

    /// Returns the tokens of a service account, including revoked and expired ones.
    pub async fn tokens_of_service_account(&mut self, id: ServiceAccountId) -> Result<Vec<TokenRecord>, StoreError> {
        let sql = "select id, sha256, project_id, service_account_id, ends_at, doc, code from tokens where service_account_id = $1 order by id";
        let rows = self.rows(sql, vec![text(id)]).await?;
        self.verified_tokens(rows)
    }

    fn verified_tokens(&self, rows: impl IntoIterator<Item = Row>) -> Result<Vec<TokenRecord>, StoreError> {
        self.verified_records(TABLE, rows, matches_row)
    }
}

/// Returns whether the columns used to find, count, revoke and purge tokens agree with the record.
pub(crate) fn matches_row(token: &TokenRecord, row: &Row) -> Result<bool, StoreError> {
    let or_empty = |id: Option<String>| id.unwrap_or_default();
    Ok(get_text(row, "id")? == token.id.to_string()
        && get_text(row, "sha256")? == token.sha256
        && get_text(row, "project_id")? == or_empty(token.project.map(|id| id.to_string()))
        && get_text(row, "service_account_id")? == or_empty(token.service_account.map(|id| id.to_string()))
        && get_int(row, "ends_at")? == ends_at(token))
}

/// Returns the statement for tokens of one project, or of all.
pub(crate) fn list(project: Option<ProjectId>) -> Select {
    Select::all("id, sha256, project_id, service_account_id, ends_at, doc, code from tokens")
        .equal("project_id", project)
}
