//! Records that are stored by key: idempotent responses, secrets, settings, tokens, grants.

use std::time::Duration;

use gpuaas_model::{Role, SecretId, TokenId, WorkloadId};
use gpuaas_store::{AccessGrantRecord, Expired, IdempotencyRecord, Page, SecretRecord, StoreError};

use super::{
    database::{Database, NOW},
    given,
};

fn answer(token: TokenId, body: &str) -> IdempotencyRecord {
    IdempotencyRecord {
        token,
        key: "k-1".into(),
        request_sha256: given::digest(),
        status: 202,
        body: body.into(),
        created_at: NOW,
    }
}

fn secret(workload: Option<WorkloadId>, name: &str, sealed: &[u8]) -> SecretRecord {
    SecretRecord {
        id: SecretId::from_uuid(given::uuid()),
        workload,
        name: name.into(),
        sealed: sealed.to_vec(),
        sha256: given::digest(),
        created_at: NOW,
    }
}

pub(crate) async fn first_response_under_an_idempotency_key_is_kept(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (TokenId::from_uuid(given::uuid()), TokenId::from_uuid(given::uuid()));
    let first = answer(ada, "{\"id\":\"first\"}");
    let mut tx = store.begin().await.unwrap();
    tx.put_idempotency(&first, None).await.unwrap();
    tx.put_idempotency(&answer(ada, "second"), None).await.expect("a repeated insert succeeds");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.idempotency(ada, "k-1").await.unwrap().as_ref(), Some(&first));
    assert_eq!(reader.idempotency(bob, "k-1").await.unwrap(), None, "a key belongs to its token");
    drop(reader);
    let day = NOW.plus(Duration::from_secs(86_400));
    let next = IdempotencyRecord { created_at: day, ..answer(ada, "next") };
    for (expired_before, kept) in [(Some(NOW), &first), (Some(day), &next)] {
        let mut tx = store.begin().await.unwrap();
        tx.put_idempotency(&next, expired_before).await.unwrap();
        assert_eq!(tx.idempotency(ada, "k-1").await.unwrap().as_ref(), Some(kept), "only an expired one is replaced");
        tx.commit().await.unwrap();
    }
}

pub(crate) async fn old_idempotency_keys_are_deleted_and_new_ones_kept(database: Database) {
    let store = database.open().await;
    let (old, new) = (TokenId::from_uuid(given::uuid()), TokenId::from_uuid(given::uuid()));
    let day = NOW.plus(Duration::from_secs(86_400));
    let mut tx = store.begin().await.unwrap();
    tx.put_idempotency(&answer(old, "old"), None).await.unwrap();
    tx.put_idempotency(&IdempotencyRecord { created_at: day, ..answer(new, "new") }, None).await.unwrap();
    tx.commit().await.unwrap();
    assert!(store.delete_expired(Expired::IdempotencyKeys(day)).await.unwrap());
    assert!(!store.delete_expired(Expired::IdempotencyKeys(day)).await.unwrap());
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.idempotency(old, "k-1").await.unwrap(), None);
    assert!(reader.idempotency(new, "k-1").await.unwrap().is_some());
}

pub(crate) async fn sealed_secrets_come_back_byte_by_byte(database: Database) {
    let store = database.open().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let kept = secret(None, "ca", &every_byte);
    let empty = secret(Some(WorkloadId::from_uuid(given::uuid())), "empty", &[]);
    let mut tx = store.begin().await.unwrap();
    tx.put_secret(&kept).await.unwrap();
    tx.put_secret(&empty).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.secret(kept.id).await.unwrap(), kept);
    assert_eq!(reader.secret(empty.id).await.unwrap(), empty);
    let unknown = reader.secret(SecretId::from_uuid(given::uuid())).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { what: "secret", .. })), "{unknown:?}");
}

pub(crate) async fn secret_replaces_an_earlier_one_with_the_same_name(database: Database) {
    let store = database.open().await;
    let workload = Some(WorkloadId::from_uuid(given::uuid()));
    let (first, second) = (secret(workload, "token", b"1"), secret(workload, "token", b"2"));
    let mut tx = store.begin().await.unwrap();
    tx.put_secret(&first).await.unwrap();
    tx.put_secret(&second).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.read().await.unwrap().secrets_of(second.workload.unwrap()).await.unwrap();
    assert_eq!(kept, [second]);
}

pub(crate) async fn secrets_of_a_workload_are_deleted_together(database: Database) {
    let store = database.open().await;
    let (deleted, kept) = (WorkloadId::from_uuid(given::uuid()), WorkloadId::from_uuid(given::uuid()));
    let mut tx = store.begin().await.unwrap();
    for (workload, name) in [(deleted, "a"), (deleted, "b"), (kept, "a")] {
        tx.put_secret(&secret(Some(workload), name, b"sealed")).await.unwrap();
    }
    tx.delete_secrets_of(deleted).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.secrets_of(deleted).await.unwrap(), []);
    assert_eq!(reader.secrets_of(kept).await.unwrap().len(), 1);
}

pub(crate) async fn first_value_of_a_setting_is_kept(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.put_setting_if_absent("key", &[0, 1, 255]).await.unwrap(), [0, 1, 255]);
    assert_eq!(tx.put_setting_if_absent("key", b"other").await.unwrap(), [0, 1, 255]);
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.setting("key").await.unwrap(), Some(vec![0, 1, 255]));
    assert_eq!(reader.setting("none").await.unwrap(), None);
}

pub(crate) async fn token_is_found_by_its_digest_and_revoked_once(database: Database) {
    let store = database.open().await;
    let token = given::token(Role::PlatformAdmin);
    let mut tx = store.begin().await.unwrap();
    tx.insert_token(&token).await.unwrap();
    tx.revoke_token(token.id, NOW).await.unwrap();
    let revoked = tx.revoke_token(token.id, NOW.plus(Duration::from_secs(1))).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(revoked.revoked_at, Some(NOW), "the first time counts");
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.token_by_sha256(&token.sha256).await.unwrap(), Some(revoked.clone()));
    assert_eq!(reader.token_by_sha256(&given::digest()).await.unwrap(), None);
    assert_eq!(reader.tokens(None, &Page::default()).await.unwrap(), [revoked]);
}

pub(crate) async fn revoked_grant_keeps_its_first_revocation_time(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let grant = given::grant(&train);
    let mut tx = store.begin().await.unwrap();
    tx.insert_access_grant(&grant).await.unwrap();
    tx.revoke_access_grant(grant.id, NOW).await.unwrap();
    tx.revoke_access_grant(grant.id, NOW.plus(Duration::from_secs(9))).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.read().await.unwrap().access_grants(train.id).await.unwrap();
    assert_eq!(kept, [AccessGrantRecord { revoked_at: Some(NOW), ..grant }]);
}
