//! Limits on the number of credentials, and the removal of ended ones.

use std::time::Duration;

use gpuaas_engine::{
    CommandError,
    commands::{project, service_account, token},
};
use gpuaas_model::{AuditAction, Code, Coded, EventKind, ProjectId, Role, StreamName, Timestamp, TokenId};
use gpuaas_store::{Page, TokenRecord};
use uuid::Uuid;

use crate::engines::{Engines, admin};

pub(super) fn record(number: u128, project: Option<ProjectId>, expires_at: Timestamp) -> TokenRecord {
    TokenRecord {
        id: TokenId::from_uuid(Uuid::from_u128(number)),
        name: format!("t{number}"),
        sha256: format!("{number:064x}"),
        role: Role::Viewer,
        project,
        service_account: None,
        workload: None,
        created_at: Timestamp::from_millis(0),
        expires_at: Some(expires_at),
        revoked_at: None,
        is_bootstrap: false,
    }
}

async fn insert(engines: &Engines, tokens: impl IntoIterator<Item = TokenRecord>) {
    let mut tx = engines.store().begin().await.unwrap();
    for token in tokens {
        tx.insert_token(&token).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn code_and_has_next(refused: Result<impl Sized, CommandError>) -> (Code, bool) {
    let refused = refused.err().expect("the limit is reached");
    (refused.code(), refused.next().is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_a_thousand_valid_tokens() {
    let engines = Engines::new().await;
    let ours = project::create(&engines.engine, &admin(), "ours".parse().unwrap()).await.unwrap().id;
    let theirs = project::create(&engines.engine, &admin(), "theirs".parse().unwrap()).await.unwrap().id;
    let now = engines.engine.ports().clock.now();
    let (later, past) = (now.plus(Duration::from_secs(86_400)), Timestamp::from_millis(now.as_millis() - 1));
    insert(&engines, (0..999).map(|number| record(number, Some(ours), later))).await;
    insert(&engines, (1_000..1_100).map(|number| record(number, Some(ours), past))).await;
    let ask = |project| token::NewToken {
        name: "robot".to_owned(),
        role: Role::Viewer,
        project: Some(project),
        ttl_seconds: Some(60_000),
    };
    let (last, _) = token::create(&engines.engine, &admin(), ask(ours)).await.expect("the thousandth");
    assert_eq!(
        code_and_has_next(token::create(&engines.engine, &admin(), ask(ours)).await),
        (Code::LimitReached, true)
    );
    let account =
        service_account::create(&engines.engine, &admin(), ours, "ci".parse().unwrap(), (Role::Viewer, None)).await;
    let account = account.expect("made").name;
    let of_account = service_account::create_token(&engines.engine, &admin(), ours, &account, Some(60)).await;
    assert_eq!(code_and_has_next(of_account), (Code::LimitReached, true));
    token::create(&engines.engine, &admin(), ask(theirs)).await.expect("another project has its own limit");
    token::revoke(&engines.engine, &admin(), last.id).await.expect("revoked");
    token::create(&engines.engine, &admin(), ask(ours)).await.expect("the limit is not reached any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_a_hundred_service_accounts() {
    let engines = Engines::new().await;
    let ours = project::create(&engines.engine, &admin(), "ours".parse().unwrap()).await.unwrap().id;
    let make = async |number: u32| {
        let name = format!("ci-{number}").parse().unwrap();
        service_account::create(&engines.engine, &admin(), ours, name, (Role::Viewer, None)).await
    };
    for number in 0..100 {
        make(number).await.expect("within the limit");
    }
    assert_eq!(code_and_has_next(make(100).await), (Code::LimitReached, true));
    let deleted = "ci-7".parse().unwrap();
    service_account::delete(&engines.engine, &admin(), ours, &deleted).await.expect("deleted");
    make(100).await.expect("the limit is not reached any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_revoked_twice_is_recorded_once() {
    let engines = Engines::new().await;
    let now = engines.engine.ports().clock.now();
    insert(&engines, [record(1, None, now.plus(Duration::from_secs(86_400)))]).await;
    let id = TokenId::from_uuid(Uuid::from_u128(1));
    let once = token::revoke(&engines.engine, &admin(), id).await.expect("revoked");
    assert_eq!(token::revoke(&engines.engine, &admin(), id).await.expect("it is revoked already"), once);
    assert_eq!(engines.recorded(AuditAction::TokenRevoke).await, 1);
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::TokenRevoked).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_tokens_are_deleted_after_their_retention() {
    let engines = Engines::new().await;
    let now = engines.engine.ports().clock.now().as_millis();
    let day = 24 * 3_600 * 1_000;
    insert(&engines, [record(1, None, Timestamp::from_millis(now - 31 * day))]).await;
    insert(&engines, [record(2, None, Timestamp::from_millis(now - 29 * day))]).await;
    insert(&engines, [record(3, None, Timestamp::from_millis(now + day))]).await;
    engines.engine.retain().await.unwrap();
    let kept = engines.store().read().await.unwrap().tokens(None, &Page::default()).await.unwrap();
    let kept: Vec<String> = kept.into_iter().map(|token| token.name).collect();
    assert_eq!(kept, ["t2", "t3"]);
}
