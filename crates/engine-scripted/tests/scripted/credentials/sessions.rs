//! Sessions of browsers and the links that begin them: each ends in time, and with its token.

use std::time::Duration;

use gpuaas_engine::{
    Caller, Engine,
    commands::{
        session::{self, Sender},
        sign_in::{self, Browser, SignedIn},
        token,
    },
};
use gpuaas_model::{AuditAction, BrowserSessionId, Code, Coded, EventKind, Role, SessionProof, StreamName, Timestamp};
use gpuaas_store::{BrowserSessionRecord, TokenRecord};

use super::limits::record;
use crate::engines::{Engines, admin};

/// Stores a token that is valid for a month, and returns its holder.
async fn holder(engines: &Engines, number: u128) -> (TokenRecord, Caller) {
    let expires_at = engines.engine.ports().clock.now().plus(Duration::from_secs(30 * 86_400));
    let token = TokenRecord { role: Role::PlatformAdmin, ..record(number, None, expires_at) };
    let mut tx = engines.store().begin().await.unwrap();
    tx.insert_token(&token).await.unwrap();
    tx.commit().await.unwrap();
    let caller = Caller { principal: token::holder(&token), ..admin() };
    (token, caller)
}

async fn redeem(engine: &Engine, sha256: &str) -> Result<SignedIn, Code> {
    let browser = Browser { user_agent: Some("Test/1\u{1b}[2J"), replaces: None };
    let redeemed = sign_in::with_link(engine, admin().correlation, sha256, browser, ()).await;
    redeemed.map_err(|refused| refused.error.code())
}

async fn resume(engine: &Engine, session: &BrowserSessionRecord) -> Result<BrowserSessionId, Code> {
    let resumed = session::resume(engine, &session.sha256, Sender::User, ()).await;
    resumed.map(|(session, _)| session.id).map_err(|refused| refused.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_uses_of_a_link_succeeds() {
    let engines = Engines::new().await;
    let (_, caller) = holder(&engines, 1).await;
    let (link, code) = sign_in::create_link(&engines.engine, &caller).await.expect("issued");
    assert_eq!(link.sha256, code.sha256());
    assert!(sign_in::is_issued(engines.engine.keys(), code.expose()));
    let (one, other) = tokio::join!(redeem(&engines.engine, &link.sha256), redeem(&engines.engine, &link.sha256));
    let mut ended = [one.map(|made| made.session.proof), other.map(|made| made.session.proof)];
    ended.sort_by_key(Result::is_err);
    assert_eq!(ended, [Ok(SessionProof::SignInLink), Err(Code::SignInInvalid)]);
    assert_eq!(redeem(&engines.engine, &link.sha256).await.err(), Some(Code::SignInInvalid));
    let sessions = session::list(&engines.engine, &caller).await.expect("listed");
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].user_agent.as_deref(), Some(r"Test/1\u{1b}[2J"));
    for (action, expected) in [(AuditAction::SignInLinkCreate, 1), (AuditAction::SessionCreate, 1)] {
        assert_eq!(engines.recorded(action).await, expected, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_is_void_after_ten_minutes_and_without_its_token() {
    let engines = Engines::new().await;
    let (token, caller) = holder(&engines, 1).await;
    let issue = async || sign_in::create_link(&engines.engine, &caller).await.expect("issued").0;
    let link = issue().await;
    assert_eq!(link.expires_at.since(link.created_at), Duration::from_secs(600));
    let later = engines.later().await;
    assert_eq!(redeem(&later, &link.sha256).await.err(), Some(Code::SignInInvalid));
    let next = issue().await;
    token::revoke(&engines.engine, &admin(), token.id).await.expect("revoked");
    let refused = sign_in::with_link(&engines.engine, admin().correlation, &next.sha256, Browser::default(), ()).await;
    let refused = refused.expect_err("its token is revoked");
    let named = refused.holder.map(|holder| holder.token);
    assert_eq!((refused.error.code(), named), (Code::SignInInvalid, Some(token.id)), "the audit names the holder");
    let unknown =
        sign_in::with_link(&engines.engine, admin().correlation, &"0".repeat(64), Browser::default(), ()).await;
    assert!(unknown.expect_err("there is none").holder.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_without_requests_after_twelve_hours_and_with_its_token() {
    let engines = Engines::new().await;
    let (token, caller) = holder(&engines, 1).await;
    let begun = sign_in::with_token(&engines.engine, &caller, Browser::default()).await.expect("begun").session;
    assert_eq!(begun.idle_expires_at.since(begun.created_at), Duration::from_secs(30 * 60));
    assert_eq!(begun.expires_at.since(begun.created_at), Duration::from_secs(12 * 3_600));
    assert_eq!(resume(&engines.engine, &begun).await, Ok(begun.id));
    let later = engines.later().await;
    assert_eq!(resume(&later, &begun).await, Err(Code::Unauthenticated), "nothing used it for two hours");
    assert_eq!(session::list(&later, &caller).await.expect("listed"), []);

    // Used all the time, for twelve hours.
    let now = later.ports().clock.now();
    let used =
        BrowserSessionRecord { idle_expires_at: now.plus(Duration::from_secs(60)), expires_at: now, ..begun.clone() };
    let mut tx = engines.store().begin().await.unwrap();
    tx.update_browser_session(&used).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(resume(&later, &used).await, Err(Code::Unauthenticated), "twelve hours are over");
    assert_eq!(resume(&engines.engine, &used).await, Ok(used.id));
    token::revoke(&engines.engine, &admin(), token.id).await.expect("revoked");
    assert_eq!(resume(&engines.engine, &used).await, Err(Code::Unauthenticated), "its token is revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn use_of_a_session_is_written_once_a_minute_and_extends_it() {
    let engines = Engines::with_low_speed().await;
    let (_, caller) = holder(&engines, 1).await;
    let begun = sign_in::with_token(&engines.engine, &caller, Browser::default()).await.expect("begun").session;
    resume(&engines.engine, &begun).await.expect("valid");
    let stored = async || engines.store().read().await.unwrap().browser_session(begun.id).await.unwrap();
    let minute = Duration::from_secs(60);
    assert!(stored().await.last_used_at.since(begun.created_at) < minute, "within a minute nothing is written");
    // As if the last use were written some minutes ago.
    let early = |at: Timestamp| Timestamp::from_millis(at.as_millis() - 5 * 60_000);
    let used = BrowserSessionRecord {
        last_used_at: early(begun.last_used_at),
        idle_expires_at: early(begun.idle_expires_at),
        ..begun.clone()
    };
    let mut tx = engines.store().begin().await.unwrap();
    tx.update_browser_session(&used).await.unwrap();
    tx.commit().await.unwrap();
    let idle = session::resume(&engines.engine, &begun.sha256, Sender::IdlePage, ()).await;
    assert_eq!(idle.expect("valid").0.id, begun.id);
    assert_eq!(stored().await, used, "an idle page does not use its session");
    resume(&engines.engine, &begun).await.expect("valid");
    let after = stored().await;
    assert!(after.last_used_at >= begun.last_used_at && after.idle_expires_at > used.idle_expires_at, "{after:?}");
    assert_eq!(after.expires_at, begun.expires_at, "use does not extend the whole session");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_has_at_most_twenty_sessions_and_a_hundred_links_in_ten_minutes() {
    let engines = Engines::new().await;
    let ((_, caller), (_, other)) = (holder(&engines, 1).await, holder(&engines, 2).await);
    let begin = async |of: &Caller| sign_in::with_token(&engines.engine, of, Browser::default()).await;
    let mut first = None;
    for _ in 0..20 {
        let begun = begin(&caller).await.expect("within the limit").session;
        first.get_or_insert(begun.id);
    }
    assert_eq!(begin(&caller).await.expect_err("too many").code(), Code::LimitReached);
    begin(&other).await.expect("another token has its own limit");
    let absent = session::revoke(&engines.engine, &other, first.expect("one")).await;
    assert_eq!(absent.expect_err("another's session").code(), Code::NotFound);
    session::revoke(&engines.engine, &caller, first.expect("one")).await.expect("revoked");
    begin(&caller).await.expect("the limit is not reached any more");
    for _ in 0..100 {
        sign_in::create_link(&engines.engine, &caller).await.expect("within the limit");
    }
    let refused = sign_in::create_link(&engines.engine, &caller).await.expect_err("too many");
    assert_eq!(refused.code(), Code::LimitReached);
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count(EventKind::SessionCreated), 22);
    assert_eq!((count(EventKind::SessionRevoked), count(EventKind::SignInLinkCreated)), (1, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_ends_the_session_that_the_browser_had() {
    let engines = Engines::with_low_speed().await;
    let ((_, caller), (_, other)) = (holder(&engines, 1).await, holder(&engines, 2).await);
    let begin = async |of: &Caller, replaces: Option<&str>| {
        let browser = Browser { user_agent: None, replaces };
        sign_in::with_token(&engines.engine, of, browser).await.expect("begun").session
    };
    let (first, elsewhere) = (begin(&caller, None).await, begin(&caller, None).await);
    let second = begin(&other, Some(first.sha256.as_str())).await;
    assert_eq!(resume(&engines.engine, &first).await, Err(Code::Unauthenticated), "its cookie is replaced");
    assert_eq!(resume(&engines.engine, &second).await, Ok(second.id));
    assert_eq!(resume(&engines.engine, &elsewhere).await, Ok(elsewhere.id), "another browser stays signed in");
    begin(&caller, Some(first.sha256.as_str())).await;
    assert_eq!(engines.recorded(AuditAction::SessionRevoke).await, 1, "an ended session is not ended again");
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::SessionRevoked).count(), 1);
    // A browser that signs in again and again stays within the limit of its token.
    let mut latest = elsewhere;
    for _ in 0..20 {
        latest = begin(&caller, Some(latest.sha256.as_str())).await;
    }
}
