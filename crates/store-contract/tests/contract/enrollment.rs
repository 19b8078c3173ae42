//! Enrollment tokens can be used only once.

use std::time::Duration;

use gpuaas_model::{NodeId, Timestamp};
use gpuaas_store::{EnrollmentRecord, EnrollmentRefusal, EnrollmentTerms, NodeKeyRecord, Store, StoreError};

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

async fn redeem(store: &Store, sha256: &str, node: NodeId, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.redeem_enrollment(sha256, node, now).await?;
    tx.commit().await
}

fn assert_refused(outcome: Result<(), StoreError>, wanted: EnrollmentRefusal) {
    match outcome {
        Err(StoreError::EnrollmentRefused(refusal)) => assert_eq!(refusal, wanted),
        other => panic!("expected the refusal {wanted}: {other:?}"),
    }
}

async fn issue_enrollment(store: &Store) -> EnrollmentRecord {
    let node = given::node("gpu-1");
    let enrollment = given::enrollment(&node);
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&node).await.unwrap();
    tx.insert_enrollment(&enrollment).await.unwrap();
    tx.commit().await.unwrap();
    enrollment
}

pub(crate) async fn a_token_works_once(database: Database) {
    let store = database.open().await;
    let token = issue_enrollment(&store).await;
    redeem(&store, &token.sha256, token.node, NOW).await.unwrap();
    assert_refused(redeem(&store, &token.sha256, token.node, NOW).await, EnrollmentRefusal::Used);
}

pub(crate) async fn one_of_two_concurrent_redemptions_succeeds(database: Database) {
    let stores = [database.open().await, database.open().await];
    let token = issue_enrollment(&stores[0]).await;
    let outcomes = run_concurrently(2, |index| {
        let (store, token) = (stores[index].clone(), token.clone());
        async move { redeem(&store, &token.sha256, token.node, NOW).await }
    })
    .await;
    let (kept, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(kept.len(), 1);
    refused.into_iter().for_each(|outcome| assert_refused(outcome, EnrollmentRefusal::Used));
}

pub(crate) async fn token_is_refused_if_expired_unknown_or_for_another_node(database: Database) {
    let store = database.open().await;
    let token = issue_enrollment(&store).await;
    let other_node = NodeId::from_uuid(given::uuid());
    assert_refused(redeem(&store, &token.sha256, token.node, token.expires_at).await, EnrollmentRefusal::Expired);
    assert_refused(redeem(&store, &token.sha256, other_node, NOW).await, EnrollmentRefusal::OtherNode);
    assert_refused(redeem(&store, &given::digest(), token.node, NOW).await, EnrollmentRefusal::Unknown);
    redeem(&store, &token.sha256, token.node, NOW).await.expect("a refusal does not use up the token");
}

pub(crate) async fn a_newer_token_of_the_same_node_ends_the_older(database: Database) {
    let store = database.open().await;
    let older = issue_enrollment(&store).await;
    let later = NOW.plus(Duration::from_secs(60));
    let newer = EnrollmentRecord {
        id: gpuaas_model::EnrollmentId::from_uuid(given::uuid()),
        sha256: given::digest(),
        created_at: later,
        ..older.clone()
    };
    let mut tx = store.begin().await.unwrap();
    tx.insert_enrollment(&newer).await.unwrap();
    tx.commit().await.unwrap();
    assert_refused(redeem(&store, &older.sha256, older.node, later).await, EnrollmentRefusal::Expired);
    redeem(&store, &newer.sha256, newer.node, later).await.unwrap();
}

pub(crate) async fn a_redeemed_token_is_unused_again_when_its_change_is_dropped(database: Database) {
    let store = database.open().await;
    let token = issue_enrollment(&store).await;
    let mut tx = store.begin().await.unwrap();
    tx.redeem_enrollment(&token.sha256, token.node, NOW).await.unwrap();
    drop(tx);
    redeem(&store, &token.sha256, token.node, NOW).await.unwrap();
}

pub(crate) async fn redemption_returns_the_terms_of_the_token(database: Database) {
    let store = database.open().await;
    let plain = issue_enrollment(&store).await;
    let mut tx = store.begin().await.unwrap();
    let terms = tx.redeem_enrollment(&plain.sha256, plain.node, NOW).await.unwrap();
    assert_eq!(terms, EnrollmentTerms { is_forced: false, reimage_sha256: None });
    let node = tx.node(plain.node).await.unwrap();
    let forced =
        EnrollmentRecord { is_forced: true, reimage_sha256: Some(given::digest()), ..given::enrollment(&node) };
    tx.insert_enrollment(&forced).await.unwrap();
    let terms = tx.redeem_enrollment(&forced.sha256, forced.node, NOW).await.unwrap();
    assert_eq!(terms, EnrollmentTerms { is_forced: true, reimage_sha256: forced.reimage_sha256 });
}

pub(crate) async fn key_is_certified_once_and_the_oldest_keys_of_a_node_are_deleted(database: Database) {
    let store = database.open().await;
    let node = issue_enrollment(&store).await.node;
    let key = |number: i64| NodeKeyRecord {
        sha256: format!("{number:064x}"),
        node,
        epoch: 1,
        created_at: Timestamp::from_millis(NOW.as_millis() + number),
    };
    let mut tx = store.begin().await.unwrap();
    for number in 0..300 {
        tx.insert_node_key(&key(number)).await.unwrap();
        assert!(matches!(tx.insert_node_key(&key(number)).await, Err(StoreError::KeyReused)), "{number}");
    }
    assert!(tx.is_node_key(&key(44).sha256).await.unwrap(), "the newest 256 keys are stored");
    assert!(!tx.is_node_key(&key(43).sha256).await.unwrap(), "older keys are deleted");
    tx.commit().await.unwrap();
}
