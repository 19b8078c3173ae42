//! Rotation and revocation of signing keys.

use std::time::Duration;

use gpuaas_engine::commands::keys;
use gpuaas_model::{AuditAction, Code, Coded, KeyState, ReplicaId, StreamName, Timestamp};
use gpuaas_store::{Eviction, ReplicaRecord};
use gpuaas_trust::{SignedKeySet, SigningKeySet};
use uuid::Uuid;

use crate::engines::{Engines, admin, eventually};

/// Returns the id of the active signing key.
async fn active(engines: &Engines) -> String {
    let keys = engines.store().read().await.unwrap().signing_keys().await.unwrap();
    let mut active = keys.into_iter().filter(|stored| stored.key.state == KeyState::Active);
    let key = active.next().expect("a key is active").key.key_id;
    assert!(active.next().is_none(), "only one key is active");
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_is_refused_while_a_live_replica_runs_another_version() {
    let engines = Engines::new().await;
    let other = ReplicaRecord {
        id: ReplicaId::from_uuid(Uuid::from_u128(99)),
        address: None,
        channel: String::new(),
        api_url: String::new(),
        version: "0.0.0-older".to_owned(),
        started_at: engines.engine.ports().clock.now(),
        sealing_keys: Vec::new(),
        is_key_file_old: false,
    };
    engines.store().join_replica(&other, Duration::from_secs(60)).await.unwrap();
    let refused = keys::rotate(&engines.engine, &admin()).await.expect_err("the other replica is alive");
    assert_eq!(refused.code(), Code::ReplicaVersionsDiffer);
    assert!(refused.next().is_some_and(|next| next.contains("gpuaas replica list")), "{refused:?}");
    engines.store().evict_replica(other.id, Eviction::Unconditional).await.unwrap();
    let like_this = ReplicaRecord { version: env!("CARGO_PKG_VERSION").to_owned(), ..other };
    engines.store().join_replica(&like_this, Duration::from_secs(60)).await.unwrap();
    keys::rotate(&engines.engine, &admin()).await.expect("all replicas have one version");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_is_replaced_at_once() {
    let engines = Engines::new().await;
    let first = active(&engines).await;
    let revoked = keys::revoke(&engines.engine, &admin(), &first).await.expect("revoked");
    assert_eq!(revoked.state, KeyState::Revoked);
    let second = active(&engines).await;
    assert_ne!(first, second);
    let staged = keys::rotate(&engines.engine, &admin()).await.expect("no rotation is under way").key_id;
    keys::revoke(&engines.engine, &admin(), &second).await.expect("revoked");
    assert_eq!(active(&engines).await, staged, "the staged key is activated at once");
    assert_eq!(engines.states().await, [KeyState::Active, KeyState::Revoked, KeyState::Revoked]);
    let now = engines.engine.ports().clock.now();
    let set = engines.engine.keys().signed_set(&mut engines.store().read().await.unwrap(), now).await.unwrap();
    let signed: SignedKeySet = serde_json::from_str(&set.text).unwrap();
    let ends = serde_json::from_str::<SigningKeySet>(&signed.set).unwrap().expires_at;
    assert_eq!(ends, now.plus(Duration::from_secs(30 * 24 * 3_600)));
    assert!(set.text.len() > 10 && !set.text.contains(&first) && !set.text.contains(&second), "{}", set.text);
    let refused = keys::revoke(&engines.engine, &admin(), "ed25519-unknown").await.expect_err("the key does not exist");
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_staged_key_ends_its_rotation() {
    let engines = Engines::new().await;
    let first = active(&engines).await;
    let staged = keys::rotate(&engines.engine, &admin()).await.expect("begun").key_id;
    keys::revoke(&engines.engine, &admin(), &staged).await.expect("revoked");
    assert_eq!((active(&engines).await, engines.states().await), (first, vec![KeyState::Active, KeyState::Revoked]));
    engines.run_key_rotation();
    keys::rotate(&engines.engine, &admin()).await.expect("another rotation may begin");
    eventually("the rotation does not end", async || {
        engines.states().await == [KeyState::Active, KeyState::Retired, KeyState::Revoked]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_key_set_is_sent_again_before_it_expires() {
    let engines = Engines::new().await;
    let (given_lately, given_long_ago) = (engines.node("gpu-1").await, engines.node("gpu-2").await);
    let now = engines.engine.ports().clock.now();
    let days_ago = |days: i64| Timestamp::from_millis(now.as_millis() - days * 24 * 3_600_000);
    let mut tx = engines.store().begin().await.unwrap();
    for (node, days) in [(given_lately, 9), (given_long_ago, 11)] {
        let session = tx.session(node).await.unwrap().expect("it is connected");
        tx.set_session_keys(node, session.connection, 1, days_ago(days)).await.unwrap();
    }
    tx.commit().await.unwrap();
    engines.run_key_rotation();
    let given_at = async |node| {
        let session = engines.store().read().await.unwrap().session(node).await.unwrap();
        session.expect("it is connected").keys_given_at.expect("it was sent")
    };
    eventually("the set is not sent again", async || given_at(given_long_ago).await >= now).await;
    assert_eq!(given_at(given_lately).await, days_ago(9), "it is not due yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_twice_is_recorded_once() {
    let engines = Engines::new().await;
    let first = active(&engines).await;
    let once = keys::revoke(&engines.engine, &admin(), &first).await.expect("revoked");
    let signs = active(&engines).await;
    assert_eq!(keys::revoke(&engines.engine, &admin(), &first).await.expect("it is revoked already"), once);
    assert_eq!((engines.recorded(AuditAction::KeyRevoke).await, active(&engines).await), (1, signs));
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 100).await.unwrap();
    let revocations = events.iter().filter(|event| event.subject_id == first && event.data["state"] == "revoked");
    assert_eq!(revocations.count(), 1, "{events:?}");
}
