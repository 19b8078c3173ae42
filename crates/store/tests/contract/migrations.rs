//! Opening a store: migrations only go forward, and a database with a different migration history is refused.

use std::time::Duration;

use gpuaas_model::{Role, TokenId};
use gpuaas_store::{Page, Store, StoreError, StoreOptions, TokenRecord};

use super::{
    given,
    world::{NOW, World, run_concurrently},
};

pub(crate) async fn a_store_of_a_newer_version_is_refused(world: World) {
    world.open().await.close().await;
    let known = world.number("select max(version) from schema_versions").await;
    world.sql("insert into schema_versions (version, checksum) values (4711, 'x')").await.unwrap();
    match world.try_open().await.err() {
        Some(StoreError::TooNew { found, known: newest }) => assert_eq!((found, newest), (4711, known)),
        other => panic!("a newer store was opened: {other:?}"),
    }
    world.sql("delete from schema_versions where version = 4711").await.unwrap();
    world.open().await;
}

pub(crate) async fn an_edited_migration_is_noticed(world: World) {
    world.open().await.close().await;
    world.sql("update schema_versions set checksum = 'edited' where version = 1").await.unwrap();
    match world.try_open().await.err() {
        Some(StoreError::Corrupt(why)) => {
            assert!(why.to_string().contains("table schema_versions, row 1, column checksum: migration 1"), "{why}")
        }
        other => panic!("an edited migration was accepted: {other:?}"),
    }
}

pub(crate) async fn failed_migration_is_named_and_changes_nothing(world: World) {
    world.open().await.close().await;
    // As an interrupted upgrade or a manual change could leave it: migration 9 has not run, and migration 8 only in part.
    for undo in [
        "delete from schema_versions where version >= 8",
        "drop index operations_workload",
        "drop index workloads_called",
        "drop index idempotency_age",
    ] {
        world.sql(undo).await.unwrap();
    }
    world.sql("insert into settings (name, value) values ('kept', '')").await.unwrap();
    let tables = world.number(world.tables()).await;
    for _ in 0..2 {
        match world.try_open().await.err() {
            Some(StoreError::Migration { version: 8, detail }) => assert!(detail.contains("code"), "{detail}"),
            other => panic!("expected a failed migration: {other:?}"),
        }
        assert_eq!(world.number("select max(version) from schema_versions").await, 7);
        assert_eq!(world.number(world.tables()).await, tables);
        assert_eq!(world.number("select count(*) from settings where name = 'kept'").await, 1);
    }
    world.sql("drop table node_keys").await.unwrap();
    world.sql("delete from schema_versions where version >= 5").await.unwrap();
    let tables = world.number(world.tables()).await;
    // Migration 5 creates a table and drops another before it fails: both are rolled back.
    match world.try_open().await.err() {
        Some(StoreError::Migration { version: 5, .. }) => {}
        other => panic!("expected a failed migration: {other:?}"),
    }
    assert_eq!(world.number("select max(version) from schema_versions").await, 4);
    assert_eq!(world.number(world.tables()).await, tables, "a part of the failed migration was committed");
}

pub(crate) async fn unknown_objects_are_kept_unless_a_migration_collides_with_them(world: World) {
    world.sql("create table notes (id text primary key)").await.unwrap();
    world.sql("insert into notes (id) values ('mine')").await.unwrap();
    world.sql("create table workloads (id text primary key)").await.unwrap();
    match world.try_open().await.err() {
        Some(StoreError::Migration { version: 11, detail }) => assert!(detail.contains("workloads"), "{detail}"),
        other => panic!("expected a failed migration: {other:?}"),
    }
    assert_eq!(world.number(world.tables()).await, 2, "a part of the schema was committed");
    world.sql("drop table workloads").await.unwrap();
    world.open().await.close().await;
    assert_eq!(world.number("select count(*) from notes").await, 1);
}

pub(crate) async fn opening_again_keeps_rows_and_migrates_nothing(world: World) {
    let store = world.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let versions = world.number("select count(*) from schema_versions").await;
    store.close().await;
    let again = world.open().await;
    let mut reader = again.read().await.unwrap();
    assert_eq!(reader.project(project.id).await.unwrap(), project);
    assert_eq!(reader.allocation(allocation.id).await.unwrap(), allocation);
    assert_eq!(world.number("select count(*) from schema_versions").await, versions);
}

pub(crate) async fn migration_fills_columns_from_documents(world: World) {
    let store = world.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let expiring = TokenRecord {
        id: TokenId::from_uuid(given::uuid()),
        name: "ada".into(),
        sha256: given::digest(),
        role: Role::PlatformAdmin,
        project: None,
        service_account: None,
        created_at: NOW,
        expires_at: Some(NOW.plus(Duration::from_secs(60))),
        revoked_at: None,
        is_bootstrap: false,
    };
    let of = |expires_at, revoked_at| TokenRecord {
        id: TokenId::from_uuid(given::uuid()),
        sha256: given::digest(),
        expires_at,
        revoked_at,
        ..expiring.clone()
    };
    let mut tx = store.begin().await.unwrap();
    tx.insert_task(&given::task(&node)).await.unwrap();
    for token in [expiring.clone(), of(None, None), of(expiring.expires_at, Some(NOW))] {
        tx.insert_token(&token).await.unwrap();
    }
    tx.commit().await.unwrap();
    store.close().await;
    for undo in [
        "drop index tasks_key",
        "drop index tokens_end",
        "drop index tokens_project",
        "alter table tasks drop column key_id",
        "alter table tokens drop column ends_at",
        "delete from schema_versions where version = 4",
    ] {
        world.sql(undo).await.unwrap();
    }
    let store = world.open().await;
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.open_tasks_signed_by("key").await.unwrap(), 1);
    let mut good = Vec::new();
    for seconds in [0, 59, 60] {
        good.push(reader.valid_token_count(None, NOW.plus(Duration::from_secs(seconds))).await.unwrap());
    }
    assert_eq!(good, [2, 2, 1]);
}

pub(crate) async fn migration_removes_service_accounts_without_codes_and_their_tokens(world: World) {
    let store = world.open().await;
    let (project, _, _) = given::allocated_node(&store, "gpu-1").await;
    let account = given::service_account(project.id, "ci");
    let person = TokenRecord {
        id: TokenId::from_uuid(given::uuid()),
        name: "ada".into(),
        sha256: given::digest(),
        role: Role::ProjectAdmin,
        project: Some(project.id),
        service_account: None,
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        is_bootstrap: false,
    };
    let held = TokenRecord {
        id: TokenId::from_uuid(given::uuid()),
        sha256: given::digest(),
        service_account: Some(account.id),
        ..person.clone()
    };
    let mut tx = store.begin().await.unwrap();
    tx.insert_service_account(&account).await.unwrap();
    tx.insert_token(&person).await.unwrap();
    tx.insert_token(&held).await.unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    world.sql("alter table service_accounts drop column code").await.unwrap();
    world.sql("delete from schema_versions where version = 8").await.unwrap();

    let store = world.open().await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.service_accounts(project.id, &Page::default()).await.unwrap(), []);
    assert_eq!(tx.all_tokens().await.unwrap(), [person]);
    tx.insert_service_account(&given::service_account(project.id, "ci")).await.expect("the name is free");
    assert_eq!(store.forged_rows_refused(), 0, "an upgrade reports no forged rows");
}

pub(crate) async fn migration_marks_existing_stores_as_bootstrapped(world: World) {
    let store = world.open().await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.setting("bootstrap.done").await.unwrap(), None);
    tx.put_setting_if_absent("control-plane.id", b"cp-1").await.unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    world.sql("delete from schema_versions where version = 6").await.unwrap();
    let store = world.open().await;
    assert_eq!(store.read().await.unwrap().setting("bootstrap.done").await.unwrap(), Some(b"cp-1".to_vec()));
}

pub(crate) async fn many_may_open_a_fresh_store_at_once(world: World) {
    let world = std::sync::Arc::new(world);
    let opened = run_concurrently(4, |_| {
        let world = world.clone();
        async move { world.try_open().await.map(drop) }
    })
    .await;
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
}

pub(crate) async fn an_unknown_database_is_refused_without_its_password(world: World) {
    let options = StoreOptions { url: "oracle://ada:hunter2@db/store".into() };
    assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
    drop(world.open().await);
    struct Stopped;
    impl gpuaas_model::Clock for Stopped {
        fn now(&self) -> gpuaas_model::Timestamp {
            super::world::NOW
        }
    }
    let refused = Store::open(&options, std::sync::Arc::new(Stopped)).await.err().expect("oracle is unsupported");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
}
