//! Only history is deleted from the database, and only once an archive contains it.

use std::time::Duration;

use gpuaas_model::*;
use gpuaas_store::*;

use super::{
    database::{Database, NOW},
    given,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn archive(kind: ArchiveKind, ranges: Vec<ArchivedRange>) -> ArchiveRecord {
    ArchiveRecord {
        id: ArchiveId::from_uuid(given::uuid()),
        kind,
        from: NOW,
        until: NOW,
        entries: 1,
        ranges,
        sha256: given::digest(),
        size_bytes: 1,
        created_at: NOW,
    }
}

fn range(stream: &str, first: u64, last: u64) -> ArchivedRange {
    ArchivedRange { stream: stream.to_owned(), first, last }
}

async fn insert_archive(store: &Store, archive: &ArchiveRecord, operations: &[OperationId], tasks: &[TaskId]) {
    let mut tx = store.begin().await.unwrap();
    tx.insert_archive(archive, operations, tasks).await.unwrap();
    tx.commit().await.unwrap();
}

async fn delete_all(store: &Store, what: Expired) {
    while store.delete_expired(what).await.unwrap() {}
}

/// Opens a store with `count` events and audit records that are one hour old.
async fn filled(database: &Database, count: usize) -> Store {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    for _ in 0..count {
        tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
        tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    }
    tx.commit().await.unwrap();
    database.advance_clock(3_600_000);
    store
}

async fn numbers(store: &Store) -> (Vec<u64>, Vec<u64>) {
    let mut reader = store.read().await.unwrap();
    let events = reader.events(StreamName::Platform, 0, 1_000).await.unwrap();
    let audit = reader.audits(&AuditFilter::default()).await.unwrap();
    (events.iter().map(|of| of.sequence).collect(), audit.iter().map(|of| of.sequence).collect())
}

pub(crate) async fn an_event_or_audit_record_is_deleted_only_where_an_archive_holds_it(database: Database) {
    let store = filled(&database, 5).await;
    insert_archive(&store, &archive(ArchiveKind::Events, vec![range("platform", 1, 2)]), &[], &[]).await;
    insert_archive(&store, &archive(ArchiveKind::Audit, vec![range("audit", 1, 3)]), &[], &[]).await;
    for (table, held, other) in [("events", 2, 3), ("audit", 3, 4)] {
        for statement in [
            format!("delete from {table}"),
            format!("delete from {table} where sequence = {other}"),
            format!("update {table} set sequence = sequence + 100 where sequence = {held}"),
        ] {
            let refused = database.sql(&statement).await.expect_err(&statement);
            assert!(refused.contains("append-only"), "{statement}: {refused}");
        }
    }
    delete_all(&store, Expired::ArchivedEntries).await;
    assert_eq!(numbers(&store).await, (vec![3, 4, 5], vec![4, 5]));
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    assert_eq!(tx.append_event(&given::event(StreamName::Platform)).await.unwrap().sequence, 6, "numbers continue");
}

pub(crate) async fn the_database_refuses_to_change_or_remove_an_archive(database: Database) {
    let store = filled(&database, 3).await;
    let record = archive(ArchiveKind::Audit, vec![range("audit", 1, 1)]);
    insert_archive(&store, &record, &[], &[]).await;
    for statement in [
        "delete from archives",
        "update archives set doc = '{}'",
        "delete from archive_ranges",
        "update archive_ranges set last_sequence = 3",
    ] {
        let refused = database.sql(statement).await.expect_err(statement);
        assert!(refused.contains("append-only"), "{statement}: {refused}");
    }
    assert_eq!(store.read().await.unwrap().archive(record.id).await.unwrap(), record);
}

pub(crate) async fn archivable_records_are_old_consecutive_and_never_the_newest(database: Database) {
    let store = filled(&database, 4).await;
    let mut reader = store.read().await.unwrap();
    let due = async |reader: &mut Reader, before| {
        let events = reader.events_to_archive(StreamName::Platform, before, 10).await.unwrap();
        let audit = reader.audits_to_archive(before, 10).await.unwrap();
        let of = |numbers: Vec<u64>| numbers;
        (
            of(events.iter().map(|event| event.sequence).collect()),
            of(audit.iter().map(|record| record.sequence).collect()),
        )
    };
    assert_eq!(due(&mut reader, NOW).await, (vec![], vec![]), "no record is older");
    assert_eq!(due(&mut reader, NOW.plus(HOUR)).await, (vec![1, 2, 3], vec![1, 2, 3]), "the newest record is kept");
    drop(reader);
    let ranges = |last| vec![range("platform", 1, last)];
    insert_archive(&store, &archive(ArchiveKind::Events, ranges(2)), &[], &[]).await;
    let mut reader = store.read().await.unwrap();
    assert_eq!(due(&mut reader, NOW.plus(HOUR)).await.0, [3], "archived events are not archived again");
    drop(reader);
    let mut tx = store.begin().await.unwrap();
    let again = tx.insert_archive(&archive(ArchiveKind::Events, vec![range("platform", 2, 3)]), &[], &[]).await;
    assert!(matches!(again, Err(StoreError::Stale { .. })), "{again:?}");
}

/// Inserts an operation in that state with a step and a task. A finished operation ended at `NOW`.
async fn insert_operation(
    store: &Store,
    workload: &WorkloadRecord,
    node: &NodeRecord,
    state: OperationState,
) -> OperationRecord {
    let ended_at = state.is_final().then_some(NOW);
    let operation = OperationRecord { state, ended_at, ..given::operation(workload) };
    let task = TaskRecord {
        operation: Some(operation.id),
        state: if state.is_final() { TaskState::Succeeded } else { TaskState::Dispatched },
        ended_at,
        ..given::task(node)
    };
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&operation, &[given::step(&operation, 0)]).await.unwrap();
    tx.insert_task(&task).await.unwrap();
    tx.commit().await.unwrap();
    store
        .acquire_lease(&format!("operation/{}", operation.id), ReplicaId::from_uuid(given::uuid()), HOUR)
        .await
        .unwrap();
    operation
}

async fn due_operations(store: &Store) -> Vec<OperationId> {
    let due = store.read().await.unwrap().operations_to_archive(NOW.plus(HOUR), 10).await.unwrap();
    due.into_iter().map(|operation| operation.id).collect()
}

pub(crate) async fn ended_operation_is_archivable_unless_it_is_the_newest_of_a_live_workload(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let (_, workload) = given::workload_in_project(&store, "train").await;
    let first = insert_operation(&store, &workload, &node, OperationState::Succeeded).await;
    assert_eq!(due_operations(&store).await, [], "the newest operation of a workload is kept");
    let second = insert_operation(&store, &workload, &node, OperationState::Running).await;
    assert_eq!(due_operations(&store).await, [first.id]);
    let mut tx = store.begin().await.unwrap();
    let ended = OperationRecord { state: OperationState::Succeeded, ended_at: Some(NOW), ..second.clone() };
    tx.update_operation(&ended, OperationState::Running).await.unwrap();
    let mut gone = tx.workload(workload.id).await.unwrap();
    gone.lifecycle = Lifecycle::Decommissioned;
    tx.update_workload(&gone).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(due_operations(&store).await, [first.id], "a task of the second operation is still open");
    let mut tx = store.begin().await.unwrap();
    let task = tx.tasks_of(second.id).await.unwrap().remove(0);
    let ended = TaskRecord { state: TaskState::Succeeded, ended_at: Some(NOW), ..task };
    tx.update_task(&ended, TaskState::Dispatched).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(due_operations(&store).await, [first.id, second.id]);
    assert!(store.read().await.unwrap().operations_to_archive(NOW, 10).await.unwrap().is_empty(), "none is older");
}

pub(crate) async fn archived_operation_is_deleted_with_its_rows_and_archived_once(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let (_, workload) = given::workload_in_project(&store, "train").await;
    let gone = insert_operation(&store, &workload, &node, OperationState::Succeeded).await;
    let stays = insert_operation(&store, &workload, &node, OperationState::Succeeded).await;
    insert_archive(&store, &archive(ArchiveKind::Operations, Vec::new()), &[gone.id], &[]).await;
    assert_eq!(due_operations(&store).await, []);
    let mut tx = store.begin().await.unwrap();
    let again = tx.insert_archive(&archive(ArchiveKind::Operations, Vec::new()), &[gone.id], &[]).await;
    assert!(matches!(again, Err(StoreError::Stale { .. })), "{again:?}");
    drop(tx);
    // As after a crash between archiving and deletion.
    let other = database.open().await;
    delete_all(&other, Expired::ArchivedOperations).await;
    let mut reader = store.read().await.unwrap();
    assert!(reader.operation(gone.id).await.is_err() && reader.operation(stays.id).await.is_ok());
    assert_eq!((reader.tasks_of(gone.id).await.unwrap().len(), reader.tasks_of(stays.id).await.unwrap().len()), (0, 1));
    assert_eq!((reader.steps_of(gone.id).await.unwrap().len(), reader.steps_of(stays.id).await.unwrap().len()), (0, 1));
    for (operation, is_there) in [(&gone, false), (&stays, true)] {
        assert_eq!(reader.lease(&format!("operation/{}", operation.id)).await.unwrap().is_some(), is_there);
    }
}

pub(crate) async fn tasks_without_an_operation_are_archived_on_their_own(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let ended = |at| TaskRecord { state: TaskState::Succeeded, ended_at: Some(at), ..given::task(&node) };
    let (old, open, young) = (ended(NOW), given::task(&node), ended(NOW.plus(HOUR)));
    let mut tx = store.begin().await.unwrap();
    for task in [&old, &open, &young] {
        tx.insert_task(task).await.unwrap();
    }
    tx.commit().await.unwrap();
    let due = async || {
        let due = store.read().await.unwrap().tasks_to_archive(NOW.plus(HOUR), 10).await.unwrap();
        due.into_iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert_eq!(due().await, [old.id]);
    insert_archive(&store, &archive(ArchiveKind::Tasks, Vec::new()), &[], &[old.id]).await;
    assert_eq!(due().await, []);
    delete_all(&store, Expired::ArchivedTasks).await;
    let mut reader = store.read().await.unwrap();
    let left = reader.tasks(&TaskFilter::default()).await.unwrap();
    assert_eq!(left.iter().map(|task| task.id).collect::<Vec<_>>(), [open.id, young.id]);
    assert!(matches!(reader.task(old.id).await, Err(StoreError::NotFound { .. })), "the archived task is deleted");
}

pub(crate) async fn enrollments_and_grants_are_deleted_after_their_end_and_no_earlier(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let (_, other, _) = given::allocated_node(&store, "gpu-2").await;
    let (_, workload) = given::workload_in_project(&store, "train").await;
    let (used, open) = (given::enrollment(&node), given::enrollment(&other));
    let grant = |expires_at| AccessGrantRecord { expires_at, ..given::grant(&workload) };
    let (long, revoked) = (grant(NOW.plus(HOUR)), grant(NOW.plus(HOUR)));
    let at = |seconds| NOW.plus(Duration::from_secs(seconds));
    let mut tx = store.begin().await.unwrap();
    tx.insert_enrollment(&used).await.unwrap();
    tx.insert_enrollment(&open).await.unwrap();
    tx.redeem_enrollment(&used.sha256, node.id, at(10)).await.unwrap();
    tx.insert_access_grant(&long).await.unwrap();
    tx.insert_access_grant(&revoked).await.unwrap();
    tx.revoke_access_grant(revoked.id, at(10)).await.unwrap();
    tx.commit().await.unwrap();
    for what in [Expired::Enrollments(at(10)), Expired::AccessGrants(at(10))] {
        assert!(!store.delete_expired(what).await.unwrap(), "{what:?}");
    }
    for what in [Expired::Enrollments(at(11)), Expired::AccessGrants(at(11))] {
        assert!(store.delete_expired(what).await.unwrap(), "{what:?}");
        assert!(!store.delete_expired(what).await.unwrap(), "{what:?}");
    }
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.access_grants(workload.id).await.unwrap(), [long]);
    let refused = reader.check_enrollment(&used.sha256, node.id, at(12)).await;
    assert!(matches!(refused, Err(StoreError::EnrollmentRefused(EnrollmentRefusal::Unknown))), "{refused:?}");
    reader.check_enrollment(&open.sha256, other.id, at(12)).await.expect("the token is still valid");
}

pub(crate) async fn tables_are_measured(database: Database) {
    let store = filled(&database, 500).await;
    if database.is_shared() {
        database.sql("analyze").await.unwrap();
    }
    let size = store.measure().await.unwrap();
    let of = |table: &str| size.tables.iter().find(|of| of.table == table).cloned().expect("the table is measured");
    assert_eq!((of("audit").rows, of("events").rows), (500, 500));
    assert!(of("audit").bytes > 500 * 100 && of("tokens").bytes < of("audit").bytes, "{size:?}");
}
