//! How a browser signs in: with the code of a one-time link, or with an API token. Both begin a session that acts for a token.
//!
//! Guarantees: a link works once, within [`LINK_TTL`], and only while its token is valid; of two concurrent uses one succeeds. The texts of
//! cookie and code are returned only here, and stored as digests.
//!
//! Another proof of who a person is, for example through OIDC, is a further variant of [`SessionProof`] and a function here that ends with
//! `begin`.

use std::time::Duration;

use gpuaas_model::{
    AuditAction, BrowserSessionId, Code, CorrelationId, EventKind, Principal, SessionProof, SignInLinkId, cut, visible,
};
use gpuaas_store::{BrowserSessionRecord, SignInLinkRecord, StoreError, TokenRecord, Tx};
use gpuaas_trust::SecretText;
use serde_json::json;

use super::{
    audit,
    session::{self, IDLE_MAX, LIFETIME, PERMISSION, PREFIX},
    token,
};
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    keys::Keys,
    record::{credential_event, platform_event},
};

/// Prefix of the code in a sign-in link.
const LINK_PREFIX: &str = "gpuaas-link";
/// Lifetime of a sign-in link: long enough to copy it to another machine, too short for one in a terminal's history to be useful.
const LINK_TTL: Duration = Duration::from_secs(600);
/// Maximum number of sessions of a token that have not ended.
const SESSIONS_MAX: usize = 20;
/// Maximum number of links of a token that have been issued within [`LINK_TTL`], used or not.
const LINKS_MAX: usize = 100;
/// Longest stored name of a browser, in bytes. Names of today's browsers have less than 200.
const USER_AGENT_BYTES_MAX: usize = 256;
/// How to get another link.
const LINK_HINT: &str = "open a new link: gpuaas login --browser";

/// The browser that signs in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Browser<'a> {
    /// How it names itself.
    pub user_agent: Option<&'a str>,
    /// Digest of the cookie that it has. The session of this cookie ends when the new one begins.
    pub replaces: Option<&'a str>,
}

/// A session that began.
#[derive(Debug)]
pub struct SignedIn {
    /// The session.
    pub session: BrowserSessionRecord,
    /// The session's user.
    pub principal: Principal,
    /// The text of the session's cookie.
    pub cookie: SecretText,
}

/// A refused sign-in.
#[derive(Debug)]
pub struct RefusedSignIn {
    /// Why it is refused.
    pub error: CommandError,
    /// The holder of the link's token; absent if no link has the code.
    pub holder: Option<Box<Principal>>,
}

impl From<CommandError> for RefusedSignIn {
    fn from(error: CommandError) -> Self {
        Self { error, holder: None }
    }
}

impl From<StoreError> for RefusedSignIn {
    fn from(error: StoreError) -> Self {
        CommandError::from(error).into()
    }
}

/// Returns whether a text is the code of a link that this control plane issued, valid or not. Other texts are refused without a look-up.
pub fn is_issued(keys: &Keys, text: &str) -> bool {
    keys.tokens().has_valid_code(LINK_PREFIX, text)
}

/// Creates a sign-in link for the caller. The text of its code is returned only here.
pub async fn create_link(engine: &Engine, caller: &Caller) -> Result<(SignInLinkRecord, SecretText), CommandError> {
    caller.require(PERMISSION)?;
    let ports = engine.ports();
    let (code, now) = (engine.keys().tokens().generate(LINK_PREFIX, &*ports.entropy), ports.clock.now());
    let link = SignInLinkRecord {
        id: SignInLinkId::generate(&*ports.clock, &*ports.entropy),
        sha256: code.sha256,
        token: caller.principal.token,
        created_at: now,
        expires_at: now.plus(LINK_TTL),
        used_at: None,
    };
    let mut tx = engine.store().begin().await?;
    tx.delete_ended_sign_in_links(now).await?;
    if tx.sign_in_links_of(link.token).await?.len() >= LINKS_MAX {
        let minutes = LINK_TTL.as_secs() / 60;
        let detail =
            format!("{LINKS_MAX} sign-in links were issued for this token within {minutes} minutes, the maximum");
        return Err(CommandError::new(Code::LimitReached, detail).then("wait a few minutes"));
    }
    tx.insert_sign_in_link(&link).await?;
    let data = json!({ "token": link.token, "expires_at": link.expires_at.to_string() });
    let (id, correlation) = (link.id.to_string(), Some(caller.correlation));
    platform_event(&mut tx, EventKind::SignInLinkCreated, "sign_in_link", id, correlation, data.clone()).await?;
    let target = format!("sign-in-link/{}", link.id);
    audit(&mut tx, caller, AuditAction::SignInLinkCreate, target, caller.principal.project, data).await?;
    tx.commit().await?;
    Ok((link, code.text))
}

/// Begins a session with the link whose code has this digest. `permit` is that of the look-up: it is dropped when the link is found, before
/// anything is written.
pub async fn with_link(
    engine: &Engine,
    correlation: CorrelationId,
    sha256: &str,
    browser: Browser<'_>,
    permit: impl Send,
) -> Result<SignedIn, RefusedSignIn> {
    let store = engine.store();
    let unknown = || refuse("no sign-in link has this code, or the link became void some time ago");
    let link = store.read_once().await?.sign_in_link_by_sha256(sha256).await?.ok_or_else(unknown)?;
    let token = match store.read_once().await?.token(link.token).await {
        Ok(token) => token,
        Err(StoreError::NotFound { .. }) => {
            return Err(refuse("the token that had this sign-in link issued no longer exists").into());
        }
        Err(error) => return Err(error.into()),
    };
    drop(permit);
    let caller =
        Caller { principal: token::holder(&token), correlation, is_dry_run: false, expected_plan: None, session: None };
    let signed_in = redeem(engine, &caller, (&link, &token), browser).await;
    signed_in.map_err(|error| RefusedSignIn { error, holder: Some(Box::new(caller.principal)) })
}

/// Begins a session of the caller, who sent the token itself.
pub async fn with_token(engine: &Engine, caller: &Caller, browser: Browser<'_>) -> Result<SignedIn, CommandError> {
    let mut tx = engine.store().begin().await?;
    let signed_in = begin(engine, &mut tx, caller, SessionProof::Token, browser).await?;
    tx.commit().await?;
    Ok(signed_in)
}

/// Begins a session of the caller, the holder of a link's token. Refuses a link that was used, is void, or whose token is not valid.
async fn redeem(
    engine: &Engine,
    caller: &Caller,
    (link, token): (&SignInLinkRecord, &TokenRecord),
    browser: Browser<'_>,
) -> Result<SignedIn, CommandError> {
    let used = || refuse("this sign-in link was used already: each works once");
    let now = engine.ports().clock.now();
    // These checks come first, so that repeated codes do not take the write lock.
    if link.used_at.is_some() {
        return Err(used());
    }
    if link.expires_at <= now {
        let minutes = LINK_TTL.as_secs() / 60;
        return Err(refuse(format!("this sign-in link became void {minutes} minutes after it was issued")));
    }
    if !token.is_valid_at(now) || token.is_bootstrap {
        return Err(refuse("the token that had this sign-in link issued was revoked or has expired"));
    }
    let mut tx = engine.store().begin().await?;
    if !tx.use_sign_in_link(link, now).await? {
        return Err(used());
    }
    let signed_in = begin(engine, &mut tx, caller, SessionProof::SignInLink, browser).await?;
    tx.commit().await?;
    Ok(signed_in)
}

fn refuse(why: impl Into<String>) -> CommandError {
    CommandError::new(Code::SignInInvalid, why).then(LINK_HINT)
}

/// Begins a session of the caller, and ends the one that the browser had. Refuses a caller without the permission, and one with too many
/// sessions.
async fn begin(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    proof: SessionProof,
    browser: Browser<'_>,
) -> Result<SignedIn, CommandError> {
    caller.require(PERMISSION)?;
    let ports = engine.ports();
    let now = ports.clock.now();
    tx.delete_ended_browser_sessions(now).await?;
    if let Some(sha256) = browser.replaces {
        session::end_replaced(tx, caller, sha256).await?;
    }
    if tx.browser_sessions_of(caller.principal.token).await?.len() >= SESSIONS_MAX {
        let detail = format!("this token has {SESSIONS_MAX} sessions of browsers, which is the maximum");
        let next = "end those that are not needed: `gpuaas session list`, `gpuaas session revoke ID`";
        return Err(CommandError::new(Code::LimitReached, detail).then(next));
    }
    let cookie = engine.keys().tokens().generate(PREFIX, &*ports.entropy);
    let session = BrowserSessionRecord {
        id: BrowserSessionId::generate(&*ports.clock, &*ports.entropy),
        sha256: cookie.sha256,
        token: caller.principal.token,
        proof,
        user_agent: browser.user_agent.map(|name| cut(&visible(name), USER_AGENT_BYTES_MAX).into_owned()),
        created_at: now,
        last_used_at: now,
        idle_expires_at: now.plus(IDLE_MAX),
        expires_at: now.plus(LIFETIME),
    };
    tx.insert_browser_session(&session).await?;
    let data = json!({ "token": session.token, "proof": session.proof });
    let (project, subject) = (caller.principal.project, ("session", session.id.to_string()));
    credential_event(tx, project, EventKind::SessionCreated, subject, caller.correlation, data.clone()).await?;
    let target = format!("session/{}", session.id);
    audit(tx, caller, AuditAction::SessionCreate, target, project, data).await?;
    Ok(SignedIn { session, principal: caller.principal.clone(), cookie: cookie.text })
}
