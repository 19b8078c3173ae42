//! Task-signing keys and service accounts.

use std::time::Duration;

use gpuaas_model::{KeyState, Role, ServiceAccountId, TaskState};
use gpuaas_store::{
    AuthorityRecord, Change, Expired, Page, SigningKeyRecord, Store, StoreError, StoredAuthority, StoredSigningKey,
    TokenRecord,
};

use super::{
    database::{Database, NOW},
    given,
};

async fn insert(store: &Store, key: &StoredSigningKey) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.insert_signing_key(key).await?;
    tx.commit().await
}

pub(crate) async fn a_key_that_is_made_or_changed_is_hinted(database: Database) {
    let store = database.open().await;
    let mut changes = store.changes();
    let mut made = given::signing_key("one", KeyState::Staged, 1);
    insert(&store, &made).await.unwrap();
    assert_eq!(changes.try_recv(), Ok(Change::Keys));
    made.key.state = KeyState::Active;
    let mut tx = store.begin().await.unwrap();
    tx.update_signing_key(&made.key).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv(), Ok(Change::Keys));
}

pub(crate) async fn one_key_is_active_and_one_staged_at_most(database: Database) {
    let store = database.open().await;
    insert(&store, &given::signing_key("one", KeyState::Active, 1)).await.unwrap();
    insert(&store, &given::signing_key("two", KeyState::Staged, 2)).await.unwrap();
    assert!(insert(&store, &given::signing_key("three", KeyState::Active, 3)).await.is_err());
    assert!(insert(&store, &given::signing_key("three", KeyState::Staged, 3)).await.is_err());
    assert_eq!(store.read().await.unwrap().key_set_version().await.unwrap(), 2);
}

pub(crate) async fn a_key_that_signs_no_more_has_no_seed(database: Database) {
    let store = database.open().await;
    let stored = given::signing_key("one", KeyState::Active, 1);
    insert(&store, &stored).await.unwrap();
    assert_eq!(store.read().await.unwrap().signing_keys().await.unwrap(), [stored.clone()]);
    let superseded = SigningKeyRecord { state: KeyState::Grace, version: 2, ..stored.key };
    let mut tx = store.begin().await.unwrap();
    tx.update_signing_key(&superseded).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.read().await.unwrap().signing_keys().await.unwrap();
    assert_eq!(kept, [StoredSigningKey { key: superseded, seed: Vec::new() }]);
}

pub(crate) async fn an_authority_that_is_retired_has_no_key(database: Database) {
    let store = database.open().await;
    let stored = given::authority("one", KeyState::Grace, 1);
    let retired = AuthorityRecord { state: KeyState::Retired, version: 2, ..stored.authority.clone() };
    let mut tx = store.begin().await.unwrap();
    tx.insert_authority(&stored).await.unwrap();
    assert_eq!(tx.authorities().await.unwrap(), [stored]);
    tx.update_authority(&retired).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.read().await.unwrap().authorities().await.unwrap();
    assert_eq!(kept, [StoredAuthority { authority: retired, key: Vec::new() }]);
    assert_eq!(database.number("select count(*) from authorities where length(sealed_key) > 0").await, 0);
}

pub(crate) async fn open_tasks_are_counted_by_the_key_that_signed_them(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let task = given::task(&node);
    let mut tx = store.begin().await.unwrap();
    tx.insert_task(&task).await.unwrap();
    assert_eq!(tx.open_tasks_signed_by("key").await.unwrap(), 1);
    assert_eq!(tx.open_tasks_signed_by("other").await.unwrap(), 0);
    let ended = gpuaas_store::TaskRecord { state: TaskState::Succeeded, ..task.clone() };
    tx.update_task(&ended, task.state).await.unwrap();
    assert_eq!(tx.open_tasks_signed_by("key").await.unwrap(), 0);
    tx.commit().await.unwrap();
}

pub(crate) async fn tokens_are_counted_while_valid_and_deleted_afterwards(database: Database) {
    let store = database.open().await;
    let (project, _, _) = given::allocated_node(&store, "gpu-1").await;
    let at = |seconds| NOW.plus(Duration::from_secs(seconds));
    let token = |expires_at| TokenRecord { project: Some(project.id), expires_at, ..given::token(Role::Viewer) };
    let (short, revoked, for_ever) = (token(Some(at(10))), token(Some(at(1_000))), token(None));
    let mut tx = store.begin().await.unwrap();
    for token in [&short, &revoked, &for_ever] {
        tx.insert_token(token).await.unwrap();
    }
    tx.insert_token(&TokenRecord { project: None, ..token(None) }).await.unwrap();
    assert_eq!(tx.valid_token_count(Some(project.id), NOW).await.unwrap(), 3);
    assert_eq!(tx.valid_token_count(None, NOW).await.unwrap(), 1);
    tx.revoke_token(revoked.id, at(5)).await.unwrap();
    assert_eq!(tx.valid_token_count(Some(project.id), at(6)).await.unwrap(), 2);
    assert_eq!(tx.valid_token_count(Some(project.id), at(10)).await.unwrap(), 1);
    tx.commit().await.unwrap();
    for (moment, is_deleted) in [(5, false), (6, true), (10, false), (11, true), (100_000, false)] {
        assert_eq!(store.delete_expired(Expired::Tokens(at(moment))).await.unwrap(), is_deleted, "{moment}");
    }
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.tokens(Some(project.id), &Page::default()).await.unwrap(), [for_ever]);
}

pub(crate) async fn service_account_name_is_unique_until_deleted(database: Database) {
    let store = database.open().await;
    let (project, _, _) = given::allocated_node(&store, "gpu-1").await;
    let (another, _, _) = given::allocated_node(&store, "gpu-2").await;
    let [first, second, theirs] = [project.id, project.id, another.id].map(|of| given::service_account(of, "ci"));
    let mut tx = store.begin().await.unwrap();
    tx.insert_service_account(&first).await.unwrap();
    tx.insert_service_account(&theirs).await.expect("names are unique within a project only");
    assert!(matches!(tx.insert_service_account(&second).await, Err(StoreError::NameTaken { .. })));
    tx.delete_service_account(&first, NOW).await.unwrap();
    tx.insert_service_account(&second).await.unwrap();
    for own in [second, theirs] {
        assert_eq!(tx.service_account_by_name(own.project, &own.name).await.unwrap(), own);
        assert_eq!(tx.service_accounts(own.project, &Page::default()).await.unwrap(), [own]);
    }
}

pub(crate) async fn deleting_a_service_account_revokes_only_its_tokens(database: Database) {
    let store = database.open().await;
    let (project, _, _) = given::allocated_node(&store, "gpu-1").await;
    let account = given::service_account(project.id, "ci");
    let token = |of: Option<ServiceAccountId>| TokenRecord {
        project: Some(project.id),
        service_account: of,
        ..given::token(Role::Viewer)
    };
    let (held, other) = (token(Some(account.id)), token(None));
    let mut tx = store.begin().await.unwrap();
    tx.insert_service_account(&account).await.unwrap();
    tx.insert_token(&held).await.unwrap();
    tx.insert_token(&other).await.unwrap();
    let revoked = tx.delete_service_account(&account, NOW).await.unwrap();
    assert_eq!(revoked.iter().map(|token| token.id).collect::<Vec<_>>(), [held.id]);
    let later = NOW.plus(Duration::from_secs(1));
    assert_eq!(tx.delete_service_account(&account, later).await.unwrap(), [], "deleting again changes nothing");
    assert_eq!(tx.token(held.id).await.unwrap().revoked_at, Some(NOW));
    assert_eq!(tx.token(other.id).await.unwrap().revoked_at, None);
    tx.commit().await.unwrap();
    let at = NOW.as_millis();
    let since_then = format!("deleted_at = {at} and doc like '%\"deleted_at\":{at}%'");
    let kept = format!("select count(*) from service_accounts where {since_then}");
    assert_eq!(database.number(&kept).await, 1, "the column and the document have the time of deletion");
}
