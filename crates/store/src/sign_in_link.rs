//! One-time sign-in links, found by the digest of their code. Each row carries a code that proves that the platform wrote it
//! ([`crate::record_verifier`]).
//!
//! A used link stays until it would have expired, so that a second use differs from an unknown code.

use gpuaas_model::{Timestamp, TokenId};

use crate::{
    error::StoreError,
    query::{Row, Value, get_int, get_text, text},
    record::SignInLinkRecord,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "sign_in_links";

impl Tx {
    /// Inserts a link.
    pub async fn insert_sign_in_link(&mut self, link: &SignInLinkRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, link, &[]).await?;
        let (id, token, sha256) = (text(link.id), text(link.token), text(&link.sha256));
        let ends_at = Value::Int(link.expires_at.as_millis());
        let values = vec![id, sha256, token, ends_at, used_at(link), doc, code];
        let sql = "insert into sign_in_links (id, sha256, token_id, ends_at, used_at, doc, code) \
                   values ($1, $2, $3, $4, $5, $6, $7)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Marks a link as used at `at`. Returns false, without a change, if it was used before.
    pub async fn use_sign_in_link(&mut self, link: &SignInLinkRecord, at: Timestamp) -> Result<bool, StoreError> {
        let used = SignInLinkRecord { used_at: Some(at), ..link.clone() };
        let [doc, code] = self.doc_and_code(TABLE, &used, &[]).await?;
        let sql = "update sign_in_links set used_at = $2, doc = $3, code = $4 where id = $1 and used_at = 0";
        Ok(self.execute(sql, vec![text(link.id), used_at(&used), doc, code]).await? == 1)
    }

    /// Deletes every link that is void at `now`.
    pub async fn delete_ended_sign_in_links(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.execute("delete from sign_in_links where ends_at <= $1", vec![Value::Int(now.as_millis())]).await?;
        Ok(())
    }
}

/// Returns the value of the column that makes a link work once; 0 until it is used.
fn used_at(link: &SignInLinkRecord) -> Value {
    Value::Int(link.used_at.map_or(0, Timestamp::as_millis))
}

impl Reader {
    /// Returns the link whose code has this digest, even if it is used or void.
    pub async fn sign_in_link_by_sha256(&mut self, sha256: &str) -> Result<Option<SignInLinkRecord>, StoreError> {
        let sql = "select id, sha256, token_id, ends_at, used_at, doc, code from sign_in_links where sha256 = $1";
        let row = self.row(sql, vec![text(sha256)]).await?;
        Ok(self.verified_links(row)?.pop())
    }

    /// Returns the links of a token, used and void ones among them.
    pub async fn sign_in_links_of(&mut self, token: TokenId) -> Result<Vec<SignInLinkRecord>, StoreError> {
        let sql = "select id, sha256, token_id, ends_at, used_at, doc, code from sign_in_links where token_id = $1";
        let rows = self.rows(sql, vec![text(token)]).await?;
        self.verified_links(rows)
    }

    fn verified_links(&self, rows: impl IntoIterator<Item = Row>) -> Result<Vec<SignInLinkRecord>, StoreError> {
        self.verified_records(TABLE, rows, matches_row)
    }
}

/// Returns whether the columns used in queries agree with the record.
pub(crate) fn matches_row(link: &SignInLinkRecord, row: &Row) -> Result<bool, StoreError> {
    Ok(get_text(row, "id")? == link.id.to_string()
        && get_text(row, "sha256")? == link.sha256
        && get_text(row, "token_id")? == link.token.to_string()
        && get_int(row, "ends_at")? == link.expires_at.as_millis()
        && get_int(row, "used_at")? == link.used_at.map_or(0, Timestamp::as_millis))
}
