//! Sessions of browsers, found by the digest of their cookie. Each row carries a code that proves that the platform wrote it
//! ([`crate::record_verifier`]).
//!
//! A revoked session is deleted; the audit keeps that it existed. One that ended by itself is deleted when another begins.

use gpuaas_model::{BrowserSessionId, Timestamp, TokenId};

use crate::{
    error::StoreError,
    hint::Change,
    query::{Row, Value, get_int, get_text, text},
    record::BrowserSessionRecord,
    store::{Reader, Tx},
};

pub(crate) const TABLE: &str = "browser_sessions";

impl Tx {
    /// Inserts a session.
    pub async fn insert_browser_session(&mut self, session: &BrowserSessionRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, session, &[]).await?;
        let (id, token, sha256) = (text(session.id), text(session.token), text(&session.sha256));
        let values = vec![id, sha256, token, ends_at(session), doc, code];
        let sql =
            "insert into browser_sessions (id, sha256, token_id, ends_at, doc, code) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Writes the time of a session's latest use and of its end. A session that was deleted meanwhile stays deleted.
    pub async fn update_browser_session(&mut self, session: &BrowserSessionRecord) -> Result<(), StoreError> {
        let [doc, code] = self.doc_and_code(TABLE, session, &[]).await?;
        let sql = "update browser_sessions set ends_at = $2, doc = $3, code = $4 where id = $1";
        self.execute(sql, vec![text(session.id), ends_at(session), doc, code]).await?;
        Ok(())
    }

    /// Deletes a session. Streams of its token look at their sessions again.
    pub async fn delete_browser_session(&mut self, session: &BrowserSessionRecord) -> Result<(), StoreError> {
        self.execute("delete from browser_sessions where id = $1", vec![text(session.id)]).await?;
        self.announced.hints.push(Change::Token(session.token));
        Ok(())
    }

    /// Deletes every session that has ended at `now`.
    pub async fn delete_ended_browser_sessions(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.execute("delete from browser_sessions where ends_at <= $1", vec![Value::Int(now.as_millis())]).await?;
        Ok(())
    }
}

/// Returns the value of the column by which ended sessions are deleted.
fn ends_at(session: &BrowserSessionRecord) -> Value {
    Value::Int(session.ends_at().as_millis())
}

impl Reader {
    /// Returns the session with this id.
    pub async fn browser_session(&mut self, id: BrowserSessionId) -> Result<BrowserSessionRecord, StoreError> {
        let sql = "select id, sha256, token_id, ends_at, doc, code from browser_sessions where id = $1";
        let row = self.row(sql, vec![text(id)]).await?;
        self.verified_sessions(row)?.pop().ok_or_else(|| StoreError::not_found("session", id))
    }

    /// Returns the session whose cookie has this digest, even if it has ended.
    pub async fn browser_session_by_sha256(
        &mut self,
        sha256: &str,
    ) -> Result<Option<BrowserSessionRecord>, StoreError> {
        let sql = "select id, sha256, token_id, ends_at, doc, code from browser_sessions where sha256 = $1";
        let row = self.row(sql, vec![text(sha256)]).await?;
        Ok(self.verified_sessions(row)?.pop())
    }

    /// Returns the sessions of a token, oldest first, also those that have ended.
    pub async fn browser_sessions_of(&mut self, token: TokenId) -> Result<Vec<BrowserSessionRecord>, StoreError> {
        let sql =
            "select id, sha256, token_id, ends_at, doc, code from browser_sessions where token_id = $1 order by id";
        let rows = self.rows(sql, vec![text(token)]).await?;
        self.verified_sessions(rows)
    }

    fn verified_sessions(&self, rows: impl IntoIterator<Item = Row>) -> Result<Vec<BrowserSessionRecord>, StoreError> {
        self.verified_records(TABLE, rows, matches_row)
    }
}

/// Returns whether the columns used in queries agree with the record.
pub(crate) fn matches_row(session: &BrowserSessionRecord, row: &Row) -> Result<bool, StoreError> {
    Ok(get_text(row, "id")? == session.id.to_string()
        && get_text(row, "sha256")? == session.sha256
        && get_text(row, "token_id")? == session.token.to_string()
        && get_int(row, "ends_at")? == session.ends_at().as_millis())
}
