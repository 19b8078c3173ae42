//! Dumps of one store that are restored completely into another.

use std::time::Duration;

use gpuaas_model::{ReplicaId, Role, StreamName};
use gpuaas_store::{DumpError, Store};

use super::{database::Database, given};

async fn filled(store: &Store) {
    given::allocated_node(store, "gpu-1").await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_token(&given::token(Role::PlatformAdmin)).await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    tx.put_setting_if_absent("authority.key", &[0, 255, 10, 34]).await.unwrap();
    tx.commit().await.unwrap();
    let holder = ReplicaId::from_uuid(given::uuid());
    store.acquire_lease("node/one", holder, Duration::from_secs(60)).await.unwrap().unwrap();
}

async fn dumped(store: &Store) -> Vec<u8> {
    let mut rows = Vec::new();
    store.dump(&mut rows).await.unwrap();
    rows
}

pub(crate) async fn restore_counts_the_rows_of_a_dump_and_numbers_continue(database: Database) {
    let store = database.open().await;
    filled(&store).await;
    let rows = dumped(&store).await;
    for other in [Database::sqlite().await, Database::postgres().await] {
        let restored = other.open().await;
        let count = restored.restore(&mut &rows[..]).await.unwrap();
        assert_eq!(
            count as usize,
            rows.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"row\"")).count()
        );
        let mut tx = restored.begin().await.unwrap();
        tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
        assert_eq!(tx.append_event(&given::event(StreamName::Platform)).await.unwrap().sequence, 2, "numbers continue");
    }
}

pub(crate) async fn restored_leases_are_expired_with_raised_fences(database: Database) {
    let store = database.open().await;
    filled(&store).await;
    let rows = dumped(&store).await;
    let other = Database::sqlite().await;
    let restored = other.open().await;
    restored.restore(&mut &rows[..]).await.unwrap();
    let holder = ReplicaId::from_uuid(given::uuid());
    let taken = restored.acquire_lease("node/one", holder, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(taken.fence > 1_000_000, "the fence must exceed all fences since the dump: {}", taken.fence);
}

pub(crate) async fn second_restore_raises_fences_above_the_first(database: Database) {
    let store = database.open().await;
    filled(&store).await;
    let rows = dumped(&store).await;
    let mut highest = 0;
    for hours_later in [0, 1] {
        let other = Database::sqlite().await;
        other.advance_clock(hours_later * 3_600_000);
        let restored = other.open().await;
        restored.restore(&mut &rows[..]).await.unwrap();
        let before = highest;
        for _ in 0..30 {
            let holder = ReplicaId::from_uuid(given::uuid());
            let lease = restored.acquire_lease("node/one", holder, Duration::from_secs(60)).await.unwrap().unwrap();
            assert!(lease.fence > before, "fence {} was already in use before the second restore", lease.fence);
            highest = lease.fence;
            restored.release_lease("node/one", holder).await.unwrap();
        }
    }
}

pub(crate) async fn incomplete_or_malformed_dump_changes_nothing(database: Database) {
    let store = database.open().await;
    filled(&store).await;
    let rows = dumped(&store).await;
    let text = String::from_utf8(rows.clone()).unwrap();
    let without_its_end = text.rsplit_once("{\"end\"").unwrap().0.to_owned();
    let lacks_a_row = text.replacen(text.lines().find(|line| line.starts_with("{\"row\"")).unwrap(), "", 1);
    let cases = [
        String::new(),
        text[..text.len() / 2].to_owned(),
        without_its_end,
        lacks_a_row.replace("\n\n", "\n"),
        text.replacen("\"name\":\"settings\"", "\"name\":\"sqlite_master\"", 1),
        text.replacen("\"columns\":[\"", "\"columns\":[\"x) values (1); drop table nodes; --", 1),
    ];
    let empty = Database::sqlite().await.open().await;
    for case in cases {
        let refused = empty.restore(&mut case.as_bytes()).await.expect_err("the dump is malformed");
        assert!(matches!(refused, DumpError::Malformed { .. }), "{refused}");
    }
    let newer = text.replacen("{\"schema\":", "{\"schema\":9", 1);
    let refused = empty.restore(&mut newer.as_bytes()).await.expect_err("the dump has a newer schema");
    assert!(matches!(refused, DumpError::Schema { .. }), "{refused}");
    let refused = store.restore(&mut &rows[..]).await.expect_err("the store has rows");
    assert!(matches!(refused, DumpError::NotEmpty(_)), "{refused}");
    empty.restore(&mut &rows[..]).await.expect("refused dumps left no rows");
}

pub(crate) async fn every_table_is_listed_as_dumped_or_not(database: Database) {
    drop(database.open().await);
    for (table, _) in Store::dumped_tables() {
        database.number(&format!("select count(*) from {table}")).await;
    }
    let tables = database.number(database.tables()).await;
    assert_eq!(usize::try_from(tables).unwrap(), Store::dumped_tables().count(), "a table is missing from both lists");
}
