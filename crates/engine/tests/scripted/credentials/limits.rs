//! Limits on the number of credentials, and the removal of ended ones.

use std::time::Duration;

use gpuaas_engine::{
    CommandError,
    commands::{project, service_account, token},
};
use gpuaas_model::{AuditAction, Code, Coded, EventKind, ProjectId, Role, StreamName, Timestamp, TokenId};
use gpuaas_store::{Page, TokenRecord};
use uuid::Uuid;

use crate::world::{World, admin};

fn record(number: u128, project: Option<ProjectId>, expires_at: Timestamp) -> TokenRecord {
    TokenRecord {
        id: TokenId::from_uuid(Uuid::from_u128(number)),
        name: format!("t{number}"),
        sha256: format!("{number:064x}"),
        role: Role::Viewer,
        project,
        service_account: None,
        created_at: Timestamp::from_millis(0),
        expires_at: Some(expires_at),
        revoked_at: None,
        is_bootstrap: false,
    }
}

async fn keep(world: &World, tokens: impl IntoIterator<Item = TokenRecord>) {
    let mut tx = world.store().begin().await.unwrap();
    for token in tokens {
        tx.insert_token(&token).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn named(refused: Result<impl Sized, CommandError>) -> (Code, bool) {
    let refused = refused.err().expect("it is one too many");
    (refused.code(), refused.next().is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_a_thousand_good_tokens_at_most_and_those_of_the_past_do_not_count() {
    let world = World::new().await;
    let ours = project::create(&world.engine, &admin(), "ours".parse().unwrap()).await.unwrap().id;
    let theirs = project::create(&world.engine, &admin(), "theirs".parse().unwrap()).await.unwrap().id;
    let now = world.engine.ports().clock.now();
    let (later, past) = (now.plus(Duration::from_secs(86_400)), Timestamp::from_millis(now.as_millis() - 1));
    keep(&world, (0..999).map(|number| record(number, Some(ours), later))).await;
    keep(&world, (1_000..1_100).map(|number| record(number, Some(ours), past))).await;
    let ask = |project| token::NewToken {
        name: "robot".to_owned(),
        role: Role::Viewer,
        project: Some(project),
        ttl_seconds: Some(60_000),
    };
    let (last, _) = token::create(&world.engine, &admin(), ask(ours)).await.expect("the thousandth");
    assert_eq!(named(token::create(&world.engine, &admin(), ask(ours)).await), (Code::LimitReached, true));
    let account = service_account::create(&world.engine, &admin(), ours, "ci".parse().unwrap(), Role::Viewer).await;
    let account = account.expect("made").name;
    let of_account = service_account::create_token(&world.engine, &admin(), ours, &account, Some(60)).await;
    assert_eq!(named(of_account), (Code::LimitReached, true));
    token::create(&world.engine, &admin(), ask(theirs)).await.expect("another project has its own");
    token::revoke(&world.engine, &admin(), last.id).await.expect("withdrawn");
    token::create(&world.engine, &admin(), ask(ours)).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_a_hundred_service_accounts_at_most() {
    let world = World::new().await;
    let ours = project::create(&world.engine, &admin(), "ours".parse().unwrap()).await.unwrap().id;
    let make = async |number: u32| {
        let name = format!("ci-{number}").parse().unwrap();
        service_account::create(&world.engine, &admin(), ours, name, Role::Viewer).await
    };
    for number in 0..100 {
        make(number).await.expect("within the limit");
    }
    assert_eq!(named(make(100).await), (Code::LimitReached, true));
    let gone = "ci-7".parse().unwrap();
    service_account::delete(&world.engine, &admin(), ours, &gone).await.expect("deleted");
    make(100).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_withdrawn_twice_is_recorded_once() {
    let world = World::new().await;
    let now = world.engine.ports().clock.now();
    keep(&world, [record(1, None, now.plus(Duration::from_secs(86_400)))]).await;
    let id = TokenId::from_uuid(Uuid::from_u128(1));
    let once = token::revoke(&world.engine, &admin(), id).await.expect("withdrawn");
    assert_eq!(token::revoke(&world.engine, &admin(), id).await.expect("it is"), once);
    assert_eq!(world.recorded(AuditAction::TokenRevoke).await, 1);
    let events = world.store().read().await.unwrap().events(StreamName::Platform, 0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::TokenRevoked).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_ended_longer_ago_than_they_are_kept_are_removed_and_younger_ones_stay() {
    let world = World::new().await;
    let now = world.engine.ports().clock.now().as_millis();
    let day = 24 * 3_600 * 1_000;
    keep(&world, [record(1, None, Timestamp::from_millis(now - 31 * day))]).await;
    keep(&world, [record(2, None, Timestamp::from_millis(now - 29 * day))]).await;
    keep(&world, [record(3, None, Timestamp::from_millis(now + day))]).await;
    world.engine.retain().await.unwrap();
    let kept = world.store().read().await.unwrap().tokens(None, &Page::default()).await.unwrap();
    let kept: Vec<String> = kept.into_iter().map(|token| token.name).collect();
    assert_eq!(kept, ["t2", "t3"]);
}
