//! API tokens, by the digest of their secret.

use gpuaas_model::{ProjectId, Timestamp, TokenId};

use crate::{
    error::StoreError,
    query::{document, text, text_or_empty},
    record::TokenRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Adds a token.
    pub async fn insert_token(&mut self, token: &TokenRecord) -> Result<(), StoreError> {
        let values = vec![
            text(token.id),
            text(&token.sha256),
            text_or_empty(token.project),
            text_or_empty(token.service_account),
            document(token)?,
        ];
        let sql = "insert into tokens (id, sha256, project_id, service_account_id, doc) values ($1, $2, $3, $4, $5)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Withdraws a token; withdrawing it again changes nothing.
    pub async fn revoke_token(&mut self, id: TokenId, at: Timestamp) -> Result<TokenRecord, StoreError> {
        let mut token = self.token(id).await?;
        token.revoked_at.get_or_insert(at);
        self.execute("update tokens set doc = $2 where id = $1", vec![text(id), document(&token)?]).await?;
        Ok(token)
    }
}

impl Reader {
    /// The token of that id.
    pub async fn token(&mut self, id: TokenId) -> Result<TokenRecord, StoreError> {
        let found = self.find("select doc from tokens where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("token", id))
    }

    /// The token whose secret has that digest, revoked and expired ones too.
    pub async fn token_by_sha256(&mut self, sha256: &str) -> Result<Option<TokenRecord>, StoreError> {
        self.find("select doc from tokens where sha256 = $1", vec![text(sha256)]).await
    }

    /// Every token, or those of one project.
    pub async fn tokens(&mut self, project: Option<ProjectId>) -> Result<Vec<TokenRecord>, StoreError> {
        let sql = "select doc from tokens where ($1 = '' or project_id = $1) order by id";
        self.list(sql, vec![text_or_empty(project)]).await
    }
}
