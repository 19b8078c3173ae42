//! The first administrator's one-time token: it is exchanged once, before it expires and before a newer one replaces it.

use gpuaas_engine::{
    Caller,
    commands::{
        bootstrap::{self, NewAdmin},
        token::{self, NewToken},
    },
};
use gpuaas_model::{AuditAction, Code, Coded, OwnActor, Role};
use gpuaas_store::TokenRecord;
use serde_json::json;

use crate::engines::{Engines, admin};

/// Stores a one-time token after `change`. Returns the caller who holds it, authenticated before the change.
async fn holder(engines: &Engines, change: impl FnOnce(&mut TokenRecord)) -> Caller {
    let (mut token, _) = bootstrap::generate(engines.engine.keys(), engines.engine.ports());
    let now = engines.engine.ports().clock.now();
    let principal = bootstrap::holder(&token, now).expect("it is fresh");
    change(&mut token);
    let mut tx = engines.store().begin().await.unwrap();
    bootstrap::insert(&mut tx, &token, OwnActor::ControlPlane, AuditAction::TokenCreate, json!({})).await.unwrap();
    tx.commit().await.unwrap();
    Caller { principal, ..admin() }
}

async fn exchange(engines: &Engines, caller: &Caller) -> Result<TokenRecord, Code> {
    let new = NewAdmin { name: "ann".to_owned(), ttl_seconds: Some(60) };
    bootstrap::exchange(&engines.engine, caller, new).await.map(|(made, _)| made).map_err(|refused| refused.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_exchanges_succeeds() {
    let engines = Engines::new().await;
    let caller = holder(&engines, |_| {}).await;
    let (one, other) = tokio::join!(exchange(&engines, &caller), exchange(&engines, &caller));
    let mut ended = [one.map(|made| made.role), other.map(|made| made.role)];
    ended.sort_by_key(Result::is_err);
    assert_eq!(ended, [Ok(Role::PlatformAdmin), Err(Code::OneTimeTokenUsed)]);
    assert_eq!(exchange(&engines, &caller).await.unwrap_err(), Code::OneTimeTokenUsed);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_one_time_token_and_ordinary_token_are_not_exchanged() {
    let engines = Engines::new().await;
    let now = engines.engine.ports().clock.now();
    let caller = holder(&engines, |token| token.expires_at = Some(now)).await;
    assert_eq!(exchange(&engines, &caller).await.unwrap_err(), Code::Unauthenticated);
    let caller = holder(&engines, |token| token.expires_at = None).await;
    assert_eq!(exchange(&engines, &caller).await.unwrap_err(), Code::Unauthenticated);
    let caller = holder(&engines, |token| token.is_bootstrap = false).await;
    assert_eq!(exchange(&engines, &caller).await.unwrap_err(), Code::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_lifetime_is_limited_and_refusals_do_not_spend_the_token() {
    let engines = Engines::new().await;
    let caller = holder(&engines, |_| {}).await;
    let year = 365 * 24 * 3_600;
    for (name, ttl_seconds) in [("ann", Some(year + 1)), ("ann", Some(0)), ("", None), ("service-account/ci", None)] {
        let new = NewAdmin { name: name.to_owned(), ttl_seconds };
        let refused = bootstrap::exchange(&engines.engine, &caller, new).await.expect_err(name);
        assert_eq!(refused.code(), Code::FieldInvalid, "{name:?} {ttl_seconds:?}");
    }
    let made = exchange(&engines, &caller).await.expect("the token was not spent");
    assert!(!made.is_bootstrap && made.expires_at.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_one_time_token_revokes_earlier_ones_but_no_ordinary_ones() {
    let engines = Engines::new().await;
    let ask = NewToken { name: "robot".to_owned(), role: Role::PlatformAdmin, project: None, ttl_seconds: Some(60) };
    let (ordinary, _) = token::create(&engines.engine, &admin(), ask).await.expect("made");
    let (before, newer) = (holder(&engines, |_| {}).await, holder(&engines, |_| {}).await);
    assert_eq!(exchange(&engines, &before).await.unwrap_err(), Code::OneTimeTokenUsed);
    exchange(&engines, &newer).await.expect("the newest counts");
    let kept = engines.store().read().await.unwrap().token(ordinary.id).await.unwrap();
    assert_eq!(kept.revoked_at, None);
}
