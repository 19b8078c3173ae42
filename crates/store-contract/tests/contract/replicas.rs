//! Failures of a database server that several replicas share: closed connections, crashes, lost notifications.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use gpuaas_model::StreamName;
use gpuaas_postgres_server::Server;
use gpuaas_store::{Change, Store, StoreError, with_retries};
use tokio::{sync::broadcast, time::timeout};

use super::{
    database::{Database, run_concurrently},
    given,
    trail::sequences,
};

/// Longest time that a step of these tests may take. The longest of the store's timeouts that they wait for is five seconds for a lock.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

const CUT_ALL: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
                       where datname = current_database() and pid <> pg_backend_pid()";

async fn next(changes: &mut broadcast::Receiver<Change>) -> Change {
    timeout(WAIT_MAX, changes.recv()).await.expect("a hint is received").expect("the store is open")
}

pub(crate) async fn add_node(store: &Store, name: &str) -> Result<(), StoreError> {
    with_retries(async || {
        let mut tx = store.begin().await?;
        tx.insert_node(&given::node(name)).await?;
        tx.append_event(&given::event(StreamName::Platform)).await?;
        tx.append_audit(&given::audit("node/gpu")).await?;
        tx.commit().await
    })
    .await
}

pub(crate) async fn change_on_a_lost_connection_leaves_nothing_and_the_store_reconnects(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&given::node("gpu-1")).await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    database.sql(CUT_ALL).await.unwrap();
    let cut = tx.append_audit(&given::audit("node/gpu-1")).await.expect_err("the connection is lost");
    assert!(matches!(cut, StoreError::Unreachable(_)) && cut.is_retryable(), "{cut:?}");
    tx.commit().await.expect_err("the change was lost with its connection");
    assert_eq!(database.number("select count(*) from nodes").await, 0);
    add_node(&store, "gpu-1").await.expect("the store reconnects");
    assert_eq!(sequences(&store).await, [1]);
    assert_eq!(store.read().await.unwrap().last_sequence(StreamName::Platform).await.unwrap(), 1);
}

pub(crate) async fn a_connection_cut_before_a_commit_does_not_commit(database: Database) {
    let store = database.open().await;
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&given::node("gpu-1")).await.unwrap();
    database.sql(CUT_ALL).await.unwrap();
    let cut = tx.commit().await.expect_err("the connection is lost");
    assert!(matches!(cut, StoreError::UnknownOutcome(_)) && !cut.is_retryable(), "{cut:?}");
    assert_eq!(database.number("select count(*) from nodes").await, 0);
    assert_eq!(next(&mut changes).await, Change::Missed, "only the lost connection is hinted");
}

pub(crate) async fn readers_recover_when_idle_connections_were_cut(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    for _ in 0..2 {
        // All of the store's connections are idle when they are closed.
        run_concurrently(8, |_| {
            let (store, id) = (store.clone(), node.id);
            async move { store.read().await.unwrap().node(id).await.unwrap() }
        })
        .await;
        database.sql(CUT_ALL).await.unwrap();
        assert_eq!(store.read_once().await.unwrap().node(node.id).await.unwrap(), node);
        database.sql(CUT_ALL).await.unwrap();
        assert_eq!(store.read().await.unwrap().node(node.id).await.unwrap(), node);
    }
}

pub(crate) async fn lost_connections_under_load_leave_no_gap_and_no_partial_change(database: Database) {
    let stores = [database.open().await, database.open().await];
    let database = std::sync::Arc::new(database);
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let cutting = tokio::spawn({
        let (database, done) = (database.clone(), done.clone());
        async move {
            while !done.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(60)).await;
                database.sql(CUT_ALL).await.unwrap();
            }
        }
    });
    let outcomes = run_concurrently(40, |index| {
        let store = stores[index % 2].clone();
        async move { add_node(&store, &format!("gpu-{index}")).await }
    })
    .await;
    done.store(true, Ordering::Release);
    cutting.await.unwrap();
    let reported = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    let nodes = u64::try_from(database.number("select count(*) from nodes").await).unwrap();
    let open = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::UnknownOutcome(_)))).count() as u64;
    assert!((reported..=reported + open).contains(&nodes), "{nodes} nodes, {reported} acknowledged: {outcomes:?}");
    assert_eq!(sequences(&stores[0]).await, (1..=nodes).collect::<Vec<_>>());
    let events = stores[1].read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), (1..=nodes).collect::<Vec<_>>());
}

pub(crate) async fn other_processes_get_hints_after_the_commit_and_the_writer_gets_each_once(database: Database) {
    let (here, there) = (database.open().await, database.open().await);
    let (mut own, mut others) = (here.changes(), there.changes());
    let mut dropped = here.begin().await.unwrap();
    dropped.append_event(&given::event(StreamName::Platform)).await.unwrap();
    drop(dropped);
    let (_, train) = given::workload_in_project(&here, "train").await;
    let operation = given::operation(&train);
    let mut tx = here.begin().await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    tx.insert_operation(&operation, &[]).await.unwrap();
    tx.commit().await.unwrap();
    for changes in [&mut own, &mut others] {
        assert_eq!(next(changes).await, Change::Event { stream: StreamName::Platform, sequence: 1 });
        assert_eq!(next(changes).await, Change::Operation(operation.id));
    }
    let mut tx = there.begin().await.unwrap();
    tx.request_cancel(operation.id).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(next(&mut own).await, Change::Operation(operation.id), "the store does not receive its own hints again");
}

pub(crate) async fn lost_listener_reports_missed_hints_and_reconnects(database: Database) {
    let (here, there) = (database.open().await, database.open().await);
    let mut changes = there.changes();
    database.sql(CUT_ALL).await.unwrap();
    assert_eq!(next(&mut changes).await, Change::Missed);
    add_node(&here, "gpu-1").await.unwrap();
    while next(&mut changes).await != (Change::Event { stream: StreamName::Platform, sequence: 1 }) {}
}

pub(crate) async fn a_closed_store_leaves_no_connection(database: Database) {
    let store = database.open().await;
    add_node(&store, "gpu-1").await.unwrap();
    store.close().await;
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    timeout(WAIT_MAX, async { while database.number(others).await > 0 {} }).await.expect("every connection ends");
}

pub(crate) async fn events_and_audit_records_cannot_be_truncated(database: Database) {
    database.open().await;
    for table in ["events", "audit", "audit_seals"] {
        let refused = database.sql(&format!("truncate {table}")).await.expect_err("truncation is refused");
        assert!(refused.contains("append-only"), "{refused}");
    }
}

/// Needs a separate server, because it crashes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_under_load_loses_no_committed_row() {
    let mut server = tokio::task::spawn_blocking(|| Server::start(&[], &[])).await.unwrap();
    let database = Database::at(server.fresh_database().await, None);
    let stores = [database.open().await, database.open().await];
    let writing = tokio::spawn(async move {
        let outcomes = run_concurrently(4, |writer| {
            let store = stores[writer % 2].clone();
            async move {
                let mut outcomes = Vec::new();
                for turn in 0..60 {
                    outcomes.push((
                        format!("gpu-{writer}-{turn}"),
                        add_node(&store, &format!("gpu-{writer}-{turn}")).await,
                    ));
                }
                outcomes
            }
        });
        outcomes.await.into_iter().flatten().collect::<Vec<_>>()
    });
    timeout(WAIT_MAX, async { while database.number("select count(*) from nodes").await < 20 {} }).await.unwrap();
    let before = database.number("select count(*) from nodes").await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart("QUIT");
        server
    });
    let server = server.await.unwrap();
    let outcomes = writing.await.unwrap();
    let store = database.open().await;
    let mut reader = store.read().await.unwrap();
    let mut kept = 0;
    for (name, outcome) in &outcomes {
        let found = reader.node_by_name(name).await.unwrap().is_some();
        kept += u64::from(found);
        match outcome {
            Ok(()) => assert!(found, "{name} was committed but is missing"),
            // Only a repeated insert could find its own name, after a commit with an unknown outcome, and such inserts are not repeated.
            Err(StoreError::NameTaken { .. }) => panic!("{name} was inserted twice"),
            Err(StoreError::UnknownOutcome(_)) => {}
            Err(error) => assert!(!found, "{name} was refused but exists: {error}"),
        }
    }
    assert!(before < 200 && kept > 200, "the crash must come early in the run: {before} of {kept} nodes");
    assert_eq!(sequences(&store).await, (1..=kept).collect::<Vec<_>>());
    drop(server);
}
