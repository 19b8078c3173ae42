//! Transactions that the database server aborts because of a concurrent one, and how the store repeats them.

use gpuaas_store::{NodeRecord, StoreError, repeated};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use super::{
    given,
    replicas::{PATIENCE, add_node},
    trail::sequences,
    world::World,
};

/// Makes the first `conflicts` inserts of nodes fail with a serialization error. Counts with a sequence, which rollbacks do not reset.
async fn conflict_on_the_first(world: &World, conflicts: u32) {
    let trigger = format!(
        "create sequence tried; create function conflict() returns trigger language plpgsql as $$ begin \
         if nextval('tried') <= {conflicts} then raise exception 'conflict' using errcode = '40001'; end if; \
         return new; end; $$; create trigger conflict before insert on nodes for each row execute function conflict();"
    );
    world.sql(&trigger).await.unwrap();
}

pub(crate) async fn a_conflict_is_told_as_busy_and_repeated_until_it_passes(world: World) {
    let store = world.open().await;
    conflict_on_the_first(&world, 3).await;
    let mut tx = store.begin().await.unwrap();
    let conflict = tx.insert_node(&given::node("gpu-1")).await;
    assert!(matches!(conflict, Err(StoreError::Busy)), "{conflict:?}");
    drop(tx);
    add_node(&store, "gpu-1").await.expect("the fourth attempt passes");
    assert_eq!(world.number("select last_value from tried").await, 4);
    assert_eq!(sequences(&store).await, [1]);
}

pub(crate) async fn a_conflict_that_does_not_pass_is_given_up(world: World) {
    let store = world.open().await;
    conflict_on_the_first(&world, 1_000_000).await;
    let given_up = add_node(&store, "gpu-1").await;
    assert!(matches!(given_up, Err(StoreError::Busy)), "{given_up:?}");
    assert_eq!(world.number("select last_value from tried").await, 7);
    assert!(sequences(&store).await.is_empty());
}

pub(crate) async fn a_deadlock_with_a_stranger_is_repeated(world: World) {
    let store = world.open().await;
    let (_, node, _) = given::placed(&store, "gpu-1").await;
    let mut stranger = world.connect().await;
    stranger.execute("set deadlock_timeout = '60s'; begin; update nodes set state = state").await.unwrap();
    let waits = tokio::spawn({
        let store = store.clone();
        async move {
            repeated(async || {
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
    timeout(PATIENCE, async { while world.number(waiting).await == 0 {} }).await.expect("the store waits for the row");
    // A deadlock: each side waits for a lock of the other. The stranger's deadlock timeout is 60 s, so the store's transaction is aborted.
    stranger.execute("select pg_advisory_xact_lock(7253418160)").await.unwrap();
    stranger.execute("commit").await.unwrap();
    let next: NodeRecord = waits.await.unwrap().expect("it is made again");
    assert_eq!(next.generation, 2);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    timeout(PATIENCE, async { while world.number(deadlocks).await != 1 {} }).await.expect("it was a deadlock");
}

pub(crate) async fn a_writer_that_never_ends_makes_others_busy_and_not_stuck(world: World) {
    let store = world.open().await;
    let mut stranger = world.connect().await;
    stranger.execute("begin; select pg_advisory_xact_lock(7253418160)").await.unwrap();
    let waited = timeout(PATIENCE, store.begin()).await.expect("it does not wait for ever").err();
    assert!(matches!(waited, Some(StoreError::Busy)), "{waited:?}");
    stranger.close().await.unwrap();
    add_node(&store, "gpu-1").await.expect("the connection that waited is whole");
}
