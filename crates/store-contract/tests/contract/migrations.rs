//! Opening a store: migrations only go forward, and a database with a different migration history is refused.

use std::time::Duration;

use gpuaas_model::{OperationState, Role};
use gpuaas_store::{OperationFilter, OperationRecord, Store, StoreError, StoreOptions, TokenRecord};

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

pub(crate) async fn a_store_of_a_newer_version_is_refused(database: Database) {
    database.open().await.close().await;
    let known = database.number("select max(version) from schema_versions").await;
    database.sql("insert into schema_versions (version, checksum) values (4711, 'x')").await.unwrap();
    match database.try_open().await.err() {
        Some(StoreError::TooNew { found, known: newest }) => assert_eq!((found, newest), (4711, known)),
        other => panic!("a newer store was opened: {other:?}"),
    }
    database.sql("delete from schema_versions where version = 4711").await.unwrap();
    database.open().await;
}

pub(crate) async fn an_edited_migration_is_noticed(database: Database) {
    database.open().await.close().await;
    database.sql("update schema_versions set checksum = 'edited' where version = 1").await.unwrap();
    match database.try_open().await.err() {
        Some(StoreError::Corrupt(why)) => {
            assert!(why.to_string().contains("table schema_versions, row 1, column checksum: migration 1"), "{why}")
        }
        other => panic!("an edited migration was accepted: {other:?}"),
    }
}

pub(crate) async fn failed_migration_is_named_and_changes_nothing(database: Database) {
    database.open().await.close().await;
    // As an interrupted upgrade or a manual change could leave it: migration 9 has not run, and migration 8 only in part.
    for undo in [
        "delete from schema_versions where version >= 8",
        "drop index operations_workload",
        "drop index workloads_called",
        "drop index idempotency_age",
    ] {
        database.sql(undo).await.unwrap();
    }
    database.sql("insert into settings (name, value) values ('kept', '')").await.unwrap();
    let tables = database.number(database.tables()).await;
    for _ in 0..2 {
        match database.try_open().await.err() {
            Some(StoreError::Migration { version: 8, detail }) => assert!(detail.contains("code"), "{detail}"),
            other => panic!("expected a failed migration: {other:?}"),
        }
        assert_eq!(database.number("select max(version) from schema_versions").await, 7);
        assert_eq!(database.number(database.tables()).await, tables);
        assert_eq!(database.number("select count(*) from settings where name = 'kept'").await, 1);
    }
    database.sql("drop table node_keys").await.unwrap();
    database.sql("delete from schema_versions where version >= 5").await.unwrap();
    let tables = database.number(database.tables()).await;
    // Migration 5 creates a table and drops another before it fails: both are rolled back.
    match database.try_open().await.err() {
        Some(StoreError::Migration { version: 5, .. }) => {}
        other => panic!("expected a failed migration: {other:?}"),
    }
    assert_eq!(database.number("select max(version) from schema_versions").await, 4);
    assert_eq!(database.number(database.tables()).await, tables, "a part of the failed migration was committed");
}

pub(crate) async fn unknown_objects_are_kept_unless_a_migration_collides_with_them(database: Database) {
    database.sql("create table notes (id text primary key)").await.unwrap();
    database.sql("insert into notes (id) values ('mine')").await.unwrap();
    database.sql("create table workloads (id text primary key)").await.unwrap();
    match database.try_open().await.err() {
        Some(StoreError::Migration { version: 11, detail }) => assert!(detail.contains("workloads"), "{detail}"),
        other => panic!("expected a failed migration: {other:?}"),
    }
    assert_eq!(database.number(database.tables()).await, 2, "a part of the schema was committed");
    database.sql("drop table workloads").await.unwrap();
    database.open().await.close().await;
    assert_eq!(database.number("select count(*) from notes").await, 1);
}

pub(crate) async fn opening_again_keeps_rows_and_migrates_nothing(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let versions = database.number("select count(*) from schema_versions").await;
    store.close().await;
    let again = database.open().await;
    let mut reader = again.read().await.unwrap();
    assert_eq!(reader.project(project.id).await.unwrap(), project);
    assert_eq!(reader.allocation(allocation.id).await.unwrap(), allocation);
    assert_eq!(database.number("select count(*) from schema_versions").await, versions);
}

pub(crate) async fn migration_fills_columns_from_documents(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let expiring =
        TokenRecord { expires_at: Some(NOW.plus(Duration::from_secs(60))), ..given::token(Role::PlatformAdmin) };
    let of = |expires_at, revoked_at| TokenRecord { expires_at, revoked_at, ..given::token(Role::PlatformAdmin) };
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
        database.sql(undo).await.unwrap();
    }
    let store = database.open().await;
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.open_tasks_signed_by("key").await.unwrap(), 1);
    let mut good = Vec::new();
    for seconds in [0, 59, 60] {
        good.push(reader.valid_token_count(None, NOW.plus(Duration::from_secs(seconds))).await.unwrap());
    }
    assert_eq!(good, [2, 2, 1]);
}

pub(crate) async fn migration_ends_operations_that_a_later_one_superseded(database: Database) {
    let store = database.open().await;
    let (_, workload) = given::workload_in_project(&store, "train").await;
    let needs_attention = || OperationRecord {
        state: OperationState::NeedsAttention,
        ended_at: Some(NOW),
        requested_by: r#"a quote: "state":"needs_attention""#.into(),
        ..given::operation(&workload)
    };
    let mut operations = [needs_attention(), needs_attention(), needs_attention()];
    operations.sort_by_key(|operation| operation.id);
    let mut tx = store.begin().await.unwrap();
    for operation in &operations {
        tx.insert_operation(operation, &[]).await.unwrap();
    }
    tx.commit().await.unwrap();
    store.close().await;
    for undo in ["drop index workloads_named", "delete from schema_versions where version = 14"] {
        database.sql(undo).await.unwrap();
    }
    let store = database.open().await;
    let mut reader = store.read().await.unwrap();
    let [first, second, third] = &operations;
    let superseded = |of: &OperationRecord, by: &OperationRecord| OperationRecord {
        state: OperationState::Failed,
        superseded_by: Some(by.id),
        ..of.clone()
    };
    for wanted in [superseded(first, second), superseded(second, third), third.clone()] {
        assert_eq!(reader.operation(wanted.id).await.unwrap(), wanted);
    }
    let still = OperationFilter { state: Some(OperationState::NeedsAttention), ..OperationFilter::default() };
    assert_eq!(reader.operations(&still).await.unwrap(), [third.clone()], "the column agrees with the document");
}

pub(crate) async fn many_may_open_a_fresh_store_at_once(database: Database) {
    let database = std::sync::Arc::new(database);
    let opened = run_concurrently(4, |_| {
        let database = database.clone();
        async move { database.try_open().await.map(drop) }
    })
    .await;
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
}

pub(crate) async fn an_unknown_database_is_refused_without_its_password(database: Database) {
    let options = StoreOptions { url: "oracle://ada:hunter2@db/store".into() };
    assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
    drop(database.open().await);
    let refused = Store::open(&options, database.clock()).await.err().expect("oracle is unsupported");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
}
