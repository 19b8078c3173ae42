//! Sessions of browsers: found by their cookie, listed and revoked.
//!
//! A session has no rights of its own. Each request looks up the session and its token, so that a session ends at once when its token is
//! revoked or expires, or when its service account is deleted.
//!
//! Deliberately absent: how a session begins ([`super::sign_in`]), cookies and headers (`api`).

use std::time::Duration;

use gpuaas_model::{AuditAction, BrowserSessionId, Code, EventKind, Permission, Timestamp, TokenId};
use gpuaas_store::{BrowserSessionRecord, StoreError, TokenRecord, Tx};
use serde_json::json;

use super::audit;
use crate::{caller::Caller, engine::Engine, error::CommandError, keys::Keys, record::credential_event};

/// The permission that a browser's user needs: that to see the contents of projects, which programs for metrics and controllers lack.
pub const PERMISSION: Permission = Permission::ProjectRead;
/// Prefix of the text in a session's cookie.
pub(super) const PREFIX: &str = "gpuaas-session";
/// Lifetime of a session, whatever uses it: a working day.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// Longest time between two uses of a session.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// Interval at which the use of a session is written. A session can therefore end up to this much before [`IDLE_MAX`] is over.
const USE_WRITTEN_EVERY: Duration = Duration::from_secs(60);

/// What sent a request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A person who uses the page, or a program: the session is in use.
    User,
    /// An open page that nobody uses, because something that it shows has changed.
    IdlePage,
}

/// Returns whether a text is a session's cookie that this control plane issued, valid or not. Other texts are refused without a look-up.
pub fn is_issued(keys: &Keys, text: &str) -> bool {
    keys.tokens().has_valid_code(PREFIX, text)
}

/// Returns the valid session whose cookie has this digest, with its valid token, and writes that the session is in use, unless only an idle
/// page uses it. `permit` is that of the look-up: it is dropped when both are found, because the write can wait for others.
pub async fn resume(
    engine: &Engine,
    sha256: &str,
    sender: Sender,
    permit: impl Send,
) -> Result<(BrowserSessionRecord, TokenRecord), CommandError> {
    let store = engine.store();
    let session = store.read_once().await?.browser_session_by_sha256(sha256).await?;
    let session =
        session.ok_or_else(|| refuse("this session is unknown: it was revoked, or it ended some time ago"))?;
    let now = engine.ports().clock.now();
    if session.expires_at <= now {
        return Err(refuse(format!("this session ended after {} hours", LIFETIME.as_secs() / 3_600)));
    }
    if session.idle_expires_at <= now {
        return Err(refuse(format!("this session ended after {} minutes without use", IDLE_MAX.as_secs() / 60)));
    }
    let token = match store.read_once().await?.token(session.token).await {
        Ok(token) => Some(token).filter(|token| token.is_valid_at(now) && !token.is_bootstrap),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let token = token.ok_or_else(|| refuse("the token of this session was revoked or has expired"))?;
    drop(permit);
    if sender == Sender::IdlePage || !is_use_due(&session, now) {
        return Ok((session, token));
    }
    match write_use(engine, session.id, now).await {
        Ok(written) => Ok((written, token)),
        Err(StoreError::NotFound { .. }) => Err(refuse("this session was revoked")),
        Err(error) => {
            // The request itself may only read, which works without the database's acceptance of changes.
            tracing::warn!(%error, session = %session.id, "the use of a session could not be written");
            Ok((session, token))
        }
    }
}

fn refuse(why: impl Into<String>) -> CommandError {
    CommandError::new(Code::Unauthenticated, why)
        .then("sign in again: open a new link (gpuaas login --browser), or enter a token on the sign-in page")
}

/// Returns whether a use at `now` is written.
fn is_use_due(session: &BrowserSessionRecord, now: Timestamp) -> bool {
    now.since(session.last_used_at) >= USE_WRITTEN_EVERY
}

/// Writes that a session was used at `now`, unless a concurrent request has done so.
async fn write_use(engine: &Engine, id: BrowserSessionId, now: Timestamp) -> Result<BrowserSessionRecord, StoreError> {
    let mut tx = engine.store().begin().await?;
    let mut session = tx.browser_session(id).await?;
    if is_use_due(&session, now) {
        (session.last_used_at, session.idle_expires_at) = (now, now.plus(IDLE_MAX));
        tx.update_browser_session(&session).await?;
        tx.commit().await?;
    }
    Ok(session)
}

/// Lists the sessions of the caller's token that have not ended, oldest first.
pub async fn list(engine: &Engine, caller: &Caller) -> Result<Vec<BrowserSessionRecord>, CommandError> {
    caller.require(PERMISSION)?;
    let now = engine.ports().clock.now();
    let mut sessions = engine.store().read_once().await?.browser_sessions_of(caller.principal.token).await?;
    sessions.retain(|session| session.ends_at() > now);
    Ok(sessions)
}

/// Revokes one of the sessions of the caller's token. Those of other tokens look absent.
pub async fn revoke(
    engine: &Engine,
    caller: &Caller,
    id: BrowserSessionId,
) -> Result<BrowserSessionRecord, CommandError> {
    caller.require(PERMISSION)?;
    let now = engine.ports().clock.now();
    let mut tx = engine.store().begin().await?;
    let own = |session: &BrowserSessionRecord| is_own(session, caller.principal.token, now);
    let session = match tx.browser_session(id).await {
        Ok(session) => Some(session).filter(own),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let session = session.ok_or_else(|| CommandError::not_found("session", id))?;
    end(&mut tx, caller, &session).await?;
    caller.commit(tx).await?;
    Ok(session)
}

/// Ends the session whose cookie has this digest, if there is one: the browser that signs in gets another cookie for it.
pub(super) async fn end_replaced(tx: &mut Tx, caller: &Caller, sha256: &str) -> Result<(), StoreError> {
    match tx.browser_session_by_sha256(sha256).await? {
        Some(session) => end(tx, caller, &session).await,
        None => Ok(()),
    }
}

async fn end(tx: &mut Tx, caller: &Caller, session: &BrowserSessionRecord) -> Result<(), StoreError> {
    tx.delete_browser_session(session).await?;
    // Not the caller's project: a browser that signs in with a token of another project ends the session that it had.
    let project = match tx.token(session.token).await {
        Ok(token) => token.project,
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    let (subject, data) = (("session", session.id.to_string()), json!({ "token": session.token }));
    credential_event(tx, project, EventKind::SessionRevoked, subject, caller.correlation, data.clone()).await?;
    let target = format!("session/{}", session.id);
    // The record names the caller and the session's token: if their projects differ, only the platform's auditors get it.
    let shared = project.filter(|project| caller.principal.project == Some(*project));
    audit(tx, caller, AuditAction::SessionRevoke, target, shared, data).await
}

fn is_own(session: &BrowserSessionRecord, token: TokenId, now: Timestamp) -> bool {
    session.token == token && session.ends_at() > now
}
