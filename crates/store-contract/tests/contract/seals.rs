//! Seals of the audit, and the records that they cover.

use futures::FutureExt as _;
use gpuaas_model::{ArchiveId, ArchiveKind};
use gpuaas_store::{ArchiveRecord, ArchivedRange, AuditSealRecord, ChainedSeal, Store, StoreError};

use super::{
    database::{Database, NOW},
    given,
};

/// Returns the first seal, of the records 1 to `last`.
fn first_seal(last: u64) -> AuditSealRecord {
    AuditSealRecord {
        number: 1,
        first: 1,
        last,
        records: last,
        at: NOW,
        previous: "0".repeat(64),
        digest: given::digest(),
        key_id: "ed25519-1".to_owned(),
        signature: "AAAA".to_owned(),
    }
}

/// Returns the seal after `seal`, of the next records up to `last`.
fn next_seal(seal: &AuditSealRecord, last: u64) -> AuditSealRecord {
    AuditSealRecord {
        number: seal.number + 1,
        first: seal.last + 1,
        last,
        records: last - seal.last,
        previous: seal.digest.clone(),
        digest: given::digest(),
        ..seal.clone()
    }
}

async fn insert(store: &Store, seal: &AuditSealRecord) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.insert_audit_seal(seal).await?;
    tx.commit().await
}

async fn append(store: &Store, records: usize) {
    let mut tx = store.begin().await.unwrap();
    for _ in 0..records {
        tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    }
    tx.commit().await.unwrap();
}

pub(crate) async fn each_seal_continues_the_newest_one(database: Database) {
    let (store, other) = (database.open().await, database.open().await);
    assert_eq!(store.read().await.unwrap().newest_audit_seal().await.unwrap(), None);
    let first = first_seal(3);
    let second = next_seal(&first, 5);
    insert(&store, &first).await.unwrap();
    insert(&other, &second).await.unwrap();
    for stale in [
        first_seal(3),
        next_seal(&first, 6),
        AuditSealRecord { first: 7, ..next_seal(&second, 8) },
        AuditSealRecord { previous: given::digest(), ..next_seal(&second, 8) },
        AuditSealRecord { number: 4, ..next_seal(&second, 8) },
    ] {
        let refused = insert(&store, &stale).await;
        assert!(matches!(refused, Err(StoreError::Stale { .. })), "{stale:?}: {refused:?}");
    }
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.newest_audit_seal().await.unwrap(), Some(second.clone()));
    let chained = |seal: AuditSealRecord| ChainedSeal { number: seal.number, seal: Some(seal) };
    assert_eq!(reader.chained_seals(0, 1).await.unwrap(), [chained(first)]);
    assert_eq!(reader.chained_seals(1, 9).await.unwrap(), [chained(second)]);
}

pub(crate) async fn the_database_refuses_to_change_or_remove_an_audit_seal(database: Database) {
    let store = database.open().await;
    let seal = first_seal(3);
    insert(&store, &seal).await.unwrap();
    let mut statements = vec![
        "update audit_seals set digest = 'changed'",
        "update audit_seals set number = number + 100",
        "delete from audit_seals",
    ];
    if !database.is_shared() {
        statements.push("insert or replace into audit_seals select * from audit_seals");
    }
    for statement in statements {
        let refused = database.sql(statement).await.expect_err(statement);
        assert!(refused.contains("append-only"), "{statement}: {refused}");
    }
    assert_eq!(store.read().await.unwrap().newest_audit_seal().await.unwrap(), Some(seal));
}

pub(crate) async fn a_row_that_is_no_audit_record_is_returned_without_one(database: Database) {
    let store = database.open().await;
    append(&store, 3).await;
    let permit = match database.is_shared() {
        true => "alter table audit disable trigger audit_is_append_only",
        false => "drop trigger audit_is_not_updated",
    };
    database.sql(permit).await.unwrap();
    database.sql("update audit set action = 'forged' where sequence = 2").await.unwrap();
    let records = store.read().await.unwrap().chained_records(0, 2).await.unwrap();
    assert_eq!(records.iter().map(|of| of.sequence).collect::<Vec<_>>(), [1, 2], "no more than the limit");
    assert_eq!(records.iter().map(|of| of.record.is_some()).collect::<Vec<_>>(), [true, false]);
    let rest = store.read().await.unwrap().chained_records(2, 10).await.unwrap();
    assert_eq!(rest.iter().map(|of| of.sequence).collect::<Vec<_>>(), [3]);
}

pub(crate) async fn a_row_that_is_no_audit_seal_is_returned_without_one(database: Database) {
    let store = database.open().await;
    let first = first_seal(3);
    insert(&store, &first).await.unwrap();
    insert(&store, &next_seal(&first, 5)).await.unwrap();
    let permit = match database.is_shared() {
        true => "alter table audit_seals disable trigger audit_seals_are_append_only",
        false => "drop trigger audit_seals_are_not_updated",
    };
    database.sql(permit).await.unwrap();
    database.sql("update audit_seals set records = -1 where number = 1").await.unwrap();
    let seals = store.read().await.unwrap().chained_seals(0, 9).await.unwrap();
    let read: Vec<(u64, bool)> = seals.iter().map(|of| (of.number, of.seal.is_some())).collect();
    assert_eq!(read, [(1, false), (2, true)]);
}

pub(crate) async fn the_archive_of_an_audit_record_is_found_by_its_number(database: Database) {
    let store = database.open().await;
    append(&store, 5).await;
    let range = ArchivedRange { stream: ArchivedRange::AUDIT.to_owned(), first: 2, last: 3 };
    let archive = ArchiveRecord {
        id: ArchiveId::from_uuid(given::uuid()),
        kind: ArchiveKind::Audit,
        from: NOW,
        until: NOW,
        entries: 2,
        ranges: vec![range.clone()],
        sha256: given::digest(),
        size_bytes: 1,
        created_at: NOW,
    };
    let mut tx = store.begin().await.unwrap();
    tx.insert_archive(&archive, &[], &[]).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    for sequence in 1..=3 {
        let found = reader.archive_of_audit(sequence).await.unwrap();
        assert_eq!(found, Some((archive.id, range.clone())), "the one of record {sequence} or the first one behind it");
    }
    assert_eq!(reader.archive_of_audit(4).await.unwrap(), None);
    assert_eq!(reader.last_audit().await.unwrap(), 5);
}

pub(crate) async fn commit_of_audit_records_wakes_the_sealer_of_its_process_alone(database: Database) {
    let (store, other) = (database.open().await, database.open().await);
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    drop(tx);
    assert_eq!(store.audit_written().now_or_never(), None, "nothing was committed");
    append(&store, 2).await;
    assert_eq!(store.audit_written().now_or_never(), Some(()), "also if nobody waited then");
    assert_eq!(store.audit_written().now_or_never(), None, "once");
    assert_eq!(other.audit_written().now_or_never(), None, "the process that wrote a record has it sealed");
}
