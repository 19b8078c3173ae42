//! Transactions that the database server aborts because of a concurrent one, and how the store repeats them.

use gpuaas_store::{NodeRecord, StoreError, with_retries};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use super::{
    database::Database,
    given,
    replicas::{WAIT_MAX, add_node},
    trail::sequences,
};

/// Makes the first `conflicts` inserts of nodes fail with a serialization error. Counts with a sequence, which rollbacks do not reset.
async fn fail_first_inserts(database: &Database, conflicts: u32) {
    let trigger = format!(
        "create sequence tried; create function conflict() returns trigger language plpgsql as $$ begin \
         if nextval('tried') <= {conflicts} then raise exception 'conflict' using errcode = '40001'; end if; \
         return new; end; $$; create trigger conflict before insert on nodes for each row execute function conflict();"
    );
    database.sql(&trigger).await.unwrap();
}

pub(crate) async fn conflict_is_reported_as_busy_and_retried_until_it_passes(database: Database) {
    let store = database.open().await;
    fail_first_inserts(&database, 3).await;
    let mut tx = store.begin().await.unwrap();
    let conflict = tx.insert_node(&given::node("gpu-1")).await;
    assert!(matches!(conflict, Err(StoreError::Busy)), "{conflict:?}");
    drop(tx);
    add_node(&store, "gpu-1").await.expect("the fourth attempt passes");
    assert_eq!(database.number("select last_value from tried").await, 4);
    assert_eq!(sequences(&store).await, [1]);
}

pub(crate) async fn persistent_conflict_is_given_up(database: Database) {
    let store = database.open().await;
    fail_first_inserts(&database, 1_000_000).await;
    let given_up = add_node(&store, "gpu-1").await;
    assert!(matches!(given_up, Err(StoreError::Busy)), "{given_up:?}");
    assert_eq!(database.number("select last_value from tried").await, 7);
    assert!(sequences(&store).await.is_empty());
}

pub(crate) async fn change_is_retried_after_a_deadlock_with_another_session(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let mut session = database.connect().await;
    session.execute("set deadlock_timeout = '60s'; begin; update nodes set state = state").await.unwrap();
    let waits = tokio::spawn({
        let store = store.clone();
        async move {
            with_retries(async || {
                let mut tx = store.begin().await?;
                let next = tx.update_node(&node).await?;
                tx.commit().await?;
                Ok(next)
            })
            .await
        }
    });
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    timeout(WAIT_MAX, async { while database.number(waiting).await == 0 {} })
        .await
        .expect("the store waits for the row");
    // A deadlock: each side waits for a lock of the other. The stranger's deadlock timeout is 60 s, so the store's transaction is aborted.
    session.execute("select pg_advisory_xact_lock(7253418160)").await.unwrap();
    session.execute("commit").await.unwrap();
    let next: NodeRecord = waits.await.unwrap().expect("the change succeeds after a retry");
    assert_eq!(next.generation, 2);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    timeout(WAIT_MAX, async { while database.number(deadlocks).await != 1 {} }).await.expect("a deadlock is counted");
}

pub(crate) async fn writer_that_never_ends_makes_others_fail_as_busy(database: Database) {
    let store = database.open().await;
    let mut session = database.connect().await;
    session.execute("begin; select pg_advisory_xact_lock(7253418160)").await.unwrap();
    let waited = timeout(WAIT_MAX, store.begin()).await.expect("the wait is limited").err();
    assert!(matches!(waited, Some(StoreError::Busy)), "{waited:?}");
    session.close().await.unwrap();
    add_node(&store, "gpu-1").await.expect("the connection that waited is still usable");
}
