//! Rotation of the sealing key.

use std::time::Duration;

use gpuaas_engine::{SealingState, commands::sealing_key};
use gpuaas_model::{AuditAction, Code, Coded, EventKind, ReplicaId, SecretId, StreamName};
use gpuaas_store::{Eviction, ReplicaRecord, SealingRecord, SecretRecord, StoreError};
use gpuaas_trust::SealingKey;
use uuid::Uuid;

use super::limits::record;
use crate::engines::{Engines, admin, eventually};

/// Number of secrets: more than three batches of 100 rows.
const SECRETS: u128 = 350;

fn next() -> SealingKey {
    SealingKey::new(&[8; 32]).unwrap()
}

/// Inserts secrets and a token under the active key. Returns the ids of the secrets.
async fn rows(engines: &Engines) -> Vec<SecretId> {
    let (keys, now) = (engines.engine.keys(), engines.engine.ports().clock.now());
    let mut tx = engines.store().begin().await.unwrap();
    tx.put_sealing(&SealingRecord::new(keys.sealing().active(), now)).await.unwrap();
    let ids: Vec<SecretId> = (1..=SECRETS).map(|number| SecretId::from_uuid(Uuid::from_u128(number))).collect();
    for id in &ids {
        let secret = SecretRecord {
            id: *id,
            workload: None,
            name: id.to_string(),
            sha256: String::new(),
            sealed: keys.seal(*id, id.to_string().as_bytes()).unwrap(),
            created_at: now,
        };
        tx.put_secret(&secret).await.unwrap();
    }
    tx.insert_token(&record(1, None, now.plus(Duration::from_secs(100_000)))).await.unwrap();
    tx.commit().await.unwrap();
    ids
}

/// Counts the secrets that this key opens.
async fn opened_by(engines: &Engines, key: &SealingKey, ids: &[SecretId]) -> usize {
    let mut reader = engines.store().read().await.unwrap();
    let mut opened = 0;
    for id in ids {
        let sealed = reader.secret(*id).await.unwrap().sealed;
        opened += usize::from(key.open(id.to_string().as_bytes(), &sealed).is_ok());
    }
    opened
}

fn replica(engines: &Engines, sealing_keys: Vec<String>) -> ReplicaRecord {
    ReplicaRecord {
        id: ReplicaId::from_uuid(Uuid::from_u128(99)),
        address: None,
        channel: String::new(),
        api_url: "https://cp-2".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: engines.engine.ports().clock.now(),
        sealing_keys,
        is_key_file_old: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn next_sealing_key_is_activated_once_every_live_replica_holds_it() {
    let engines = Engines::new().await;
    engines.engine.join().await.unwrap();
    rows(&engines).await;
    let refused = sealing_key::rotate(&engines.engine, &admin()).await.expect_err("there is no next key");
    assert_eq!(refused.code(), Code::SealingKeyNotOnAllReplicas);
    engines.engine.keys().sealing().set_next(next());
    let engine = engines.engine.clone();
    tokio::spawn(async move { engine.run_sealing_rotation().await });
    eventually("the event of the next key is missing", async || {
        engines.recorded(AuditAction::SealingKeyTake).await == 1
    })
    .await;

    let other = replica(&engines, vec!["old".to_owned()]);
    engines.store().join_replica(&other, Duration::from_secs(100_000)).await.unwrap();
    let refused = sealing_key::rotate(&engines.engine, &admin()).await.expect_err("the other replica lacks it");
    assert_eq!(refused.code(), Code::SealingKeyNotOnAllReplicas);
    assert!(refused.to_string().contains("https://cp-2"), "{refused}");
    let seen = sealing_key::show(&engines.engine, &admin()).await.unwrap();
    assert_eq!(seen.state, SealingState::NextTaken);
    assert!(seen.waiting_for.is_some_and(|waits| waits.contains("https://cp-2")));
    assert_eq!(engines.recorded(AuditAction::SealingKeyRotate).await, 0);

    engines.store().evict_replica(other.id, Eviction::Unconditional).await.unwrap();
    let other = replica(&engines, vec!["old".to_owned(), next().id().to_owned()]);
    engines.store().join_replica(&other, Duration::from_secs(100_000)).await.unwrap();
    let begun = sealing_key::rotate(&engines.engine, &admin()).await.expect("both hold it");
    assert_eq!((begun.id.as_str(), begun.state), (next().id(), SealingState::Rotating));
    assert!(begun.rows_left > u64::try_from(SECRETS).unwrap());
    eventually("the rotation does not end", async || engines.recorded(AuditAction::SealingKeyFinish).await == 1).await;
    let seen = sealing_key::show(&engines.engine, &admin()).await.unwrap();
    assert_eq!((seen.state, seen.previous, seen.rows_left, seen.waiting_for), (SealingState::Settled, None, 0, None));
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    let changes = events.iter().filter(|event| event.kind == EventKind::SealingKeyStateChanged);
    let states: Vec<_> = changes.map(|event| event.data["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["next_taken", "rotating", "settled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_rotation_continues_where_it_stopped() {
    let engines = Engines::new().await;
    engines.engine.join().await.unwrap();
    let ids = rows(&engines).await;
    let old = SealingKey::new(&[7; 32]).unwrap();
    engines.engine.keys().sealing().set_next(next());
    // Records that the replica holds both keys, as its sealing loop does. The loop does not run here, so the test controls each batch.
    let held = replica(&engines, vec![old.id().to_owned(), next().id().to_owned()]);
    let own = ReplicaRecord { id: engines.engine.replica(), ..held };
    engines.store().join_replica(&own, Duration::from_secs(100_000)).await.unwrap();
    sealing_key::rotate(&engines.engine, &admin()).await.expect("it holds it");
    assert!(!engines.engine.reseal_some_rows().await.unwrap());
    assert!(!engines.engine.reseal_some_rows().await.unwrap());
    let (before, after) = (opened_by(&engines, &old, &ids).await, opened_by(&engines, &next(), &ids).await);
    assert!(before > 0 && after > 0 && before + after == ids.len(), "{before} + {after}");
    let left = engines.store().read().await.unwrap().rows_to_reseal().await.unwrap();
    assert!(left > 0 && left < u64::try_from(SECRETS).unwrap(), "{left}");
    let again = sealing_key::rotate(&engines.engine, &admin()).await.expect_err("one at a time");
    assert_eq!(again.code(), Code::StateConflict);

    let successor = engines.successor().await;
    for id in ids.iter().take(3) {
        let sealed = successor.store().read().await.unwrap().secret(*id).await.unwrap().sealed;
        assert!(successor.keys().sealing().set_next(next()) || successor.keys().unseal(*id, &sealed).is_ok());
    }
    tokio::spawn(async move { successor.run_sealing_rotation().await });
    eventually("the rotation does not end", async || {
        engines.store().read().await.unwrap().sealing().await.unwrap().unwrap().previous.is_none()
    })
    .await;
    assert_eq!(opened_by(&engines, &next(), &ids).await, ids.len());
    assert_eq!(opened_by(&engines, &old, &ids).await, 0);
    engines.engine.keys().sealing().drop_previous();
    let token = engines.store().read().await.unwrap().all_tokens().await.unwrap();
    assert_eq!(token.len(), 1, "its code is under the next key");
    let seeds = engines.engine.keys().ring(&mut engines.store().read().await.unwrap()).await;
    assert!(seeds.is_ok_and(|ring| ring.version() > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_the_previous_sealing_key_reseals_nothing_and_is_not_ready() {
    let engines = Engines::new().await;
    engines.engine.join().await.unwrap();
    let ids = rows(&engines).await;
    let (old, sealing) = (SealingKey::new(&[7; 32]).unwrap(), engines.engine.keys().sealing());
    sealing.set_next(next());
    let rotation = SealingRecord {
        previous: Some(old.id().to_owned()),
        ..SealingRecord::new(next().id().to_owned(), engines.engine.ports().clock.now())
    };
    let mut tx = engines.store().begin().await.unwrap();
    tx.put_sealing(&rotation).await.unwrap();
    tx.commit().await.unwrap();
    assert!(engines.engine.holds_sealing_keys().await.unwrap(), "it holds both keys");

    // As after a rotation that this replica missed: it got the key in use without the one before.
    assert!(sealing.activate(next().id()));
    sealing.drop_previous();
    assert!(!engines.engine.holds_sealing_keys().await.unwrap(), "it counts as ready");
    let refused = engines.engine.reseal_some_rows().await;
    assert!(
        matches!(&refused, Err(StoreError::SealingKeyMissing { id }) if id == old.id()),
        "it resealed rows: {refused:?}"
    );
    let recorded = engines.store().read().await.unwrap().sealing().await.unwrap();
    assert_eq!(recorded, Some(rotation), "it passed over rows");
    assert_eq!(opened_by(&engines, &old, &ids).await, ids.len());
}
