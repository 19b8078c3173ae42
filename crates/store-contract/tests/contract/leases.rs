//! Leases have one holder and a fence that only increases, and expire by the database's clock.

use std::time::Duration;

use gpuaas_model::ReplicaId;
use gpuaas_store::{Eviction, Expired};

use super::{
    database::{Database, run_concurrently},
    given,
};

const NAME: &str = "operation/train";
const LONG: Duration = Duration::from_secs(60);

fn replica() -> ReplicaId {
    ReplicaId::from_uuid(given::uuid())
}

pub(crate) async fn a_lease_is_held_by_one_and_renewed_by_its_holder(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (replica(), replica());
    let first = store.acquire_lease(NAME, ada, LONG).await.unwrap().expect("the lease is free");
    assert_eq!(first.fence, 1);
    assert_eq!(store.acquire_lease(NAME, bob, LONG).await.unwrap(), None);
    let renewed = store.acquire_lease(NAME, ada, LONG * 2).await.unwrap().expect("its holder renews it");
    assert_eq!(renewed.fence, first.fence, "a renewal keeps the fence");
    assert!(renewed.expires_at > first.expires_at);
    assert!(store.acquire_lease("another", bob, LONG).await.unwrap().is_some(), "a lease with another name is free");
}

pub(crate) async fn an_expired_lease_is_taken_over_under_a_higher_fence(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (replica(), replica());
    let first = store.acquire_lease(NAME, ada, Duration::from_millis(40)).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(80)).await;
    let mut reader = store.read().await.unwrap();
    assert!(reader.holds_lease(NAME, ada, first.fence).await.unwrap(), "expiry alone does not end the lease");
    drop(reader);
    let second = store.acquire_lease(NAME, bob, LONG).await.unwrap().expect("the lease has expired");
    assert_eq!(second.fence, first.fence + 1);
    assert_eq!(store.acquire_lease(NAME, ada, LONG).await.unwrap(), None);
}

pub(crate) async fn a_released_lease_is_free_at_once_and_its_fence_still_grows(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (replica(), replica());
    store.acquire_lease(NAME, ada, LONG).await.unwrap().unwrap();
    store.release_lease(NAME, bob).await.unwrap();
    assert_eq!(store.acquire_lease(NAME, bob, LONG).await.unwrap(), None, "only its holder can release it");
    store.release_lease(NAME, ada).await.unwrap();
    let mut fences = Vec::new();
    for holder in [bob, ada, bob] {
        fences.push(store.acquire_lease(NAME, holder, LONG).await.unwrap().unwrap().fence);
        store.release_lease(NAME, holder).await.unwrap();
    }
    assert_eq!(fences, [2, 3, 4]);
}

pub(crate) async fn deleted_and_expired_request_leases_are_removed(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (replica(), replica());
    let held = async || {
        let mut reader = store.read().await.unwrap();
        let mut held = Vec::new();
        for name in ["idempotency/a", "idempotency/b", "idempotency/c", "operation/train"] {
            held.push(reader.lease(name).await.unwrap().is_some());
        }
        held
    };
    for name in ["idempotency/a", "idempotency/b", "idempotency/c", "operation/train"] {
        let ttl = if name == "idempotency/b" { LONG } else { Duration::from_millis(1) };
        store.acquire_lease(name, ada, ttl).await.unwrap().expect("the lease is free");
    }
    store.delete_lease("idempotency/a", bob).await.unwrap();
    assert_eq!(held().await, [true; 4], "only its holder can delete it");
    store.delete_lease("idempotency/a", ada).await.unwrap();
    assert_eq!(held().await, [false, true, true, true]);
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert!(store.delete_expired(Expired::Leases).await.unwrap());
    assert!(!store.delete_expired(Expired::Leases).await.unwrap(), "no expired lease is left");
    assert_eq!(held().await, [false, true, false, true], "valid leases and leases of operations are kept");
}

pub(crate) async fn a_stale_fence_is_refused(database: Database) {
    let (old, new) = (database.open().await, database.open().await);
    let (ada, bob) = (replica(), replica());
    let stale = old.acquire_lease(NAME, ada, Duration::ZERO).await.unwrap().unwrap();
    let fresh = new.acquire_lease(NAME, bob, Duration::ZERO).await.unwrap().unwrap();
    let mut tx = old.begin().await.unwrap();
    assert!(!tx.holds_lease(NAME, ada, stale.fence).await.unwrap(), "another replica holds the lease");
    assert!(tx.holds_lease(NAME, bob, fresh.fence).await.unwrap());
    assert!(!tx.holds_lease(NAME, bob, stale.fence).await.unwrap());
    assert!(!tx.holds_lease("unknown", bob, 1).await.unwrap());
    drop(tx);
    old.acquire_lease(NAME, ada, LONG).await.unwrap().unwrap();
    let mut tx = old.begin().await.unwrap();
    assert!(!tx.holds_lease(NAME, ada, stale.fence).await.unwrap(), "an earlier fence is stale for its holder too");
}

pub(crate) async fn one_of_many_concurrent_requests_gets_the_lease(database: Database) {
    let stores = [database.open().await, database.open().await];
    for round in 1..=3 {
        let leases = run_concurrently(8, |index| {
            let store = stores[index % 2].clone();
            async move { store.acquire_lease(NAME, replica(), LONG).await.unwrap() }
        })
        .await;
        let held: Vec<_> = leases.into_iter().flatten().collect();
        assert_eq!(held.iter().map(|lease| lease.fence).collect::<Vec<_>>(), [round]);
        stores[0].release_lease(NAME, held[0].holder).await.unwrap();
    }
}

pub(crate) async fn leases_of_a_dead_replica_end_together_and_those_of_others_stay(database: Database) {
    let store = database.open().await;
    let (dead, alive, other) = (replica(), replica(), replica());
    for name in ["one", "two"] {
        store.acquire_lease(name, dead, LONG).await.unwrap().unwrap();
    }
    store.acquire_lease("three", other, LONG).await.unwrap().unwrap();
    store.evict_replica(dead, Eviction::Unconditional).await.unwrap();
    for (name, fence) in [("one", Some(2)), ("two", Some(2)), ("three", None)] {
        let taken = store.acquire_lease(name, alive, LONG).await.unwrap();
        assert_eq!(taken.map(|lease| lease.fence), fence, "{name}");
    }
}

pub(crate) async fn leases_end_by_the_clock_of_the_database(database: Database) {
    let store = database.open().await;
    store.acquire_lease(NAME, replica(), LONG).await.unwrap().unwrap();
    database.advance_clock(1_000_000_000);
    let taken = store.acquire_lease(NAME, replica(), LONG).await.unwrap();
    assert_eq!(taken, None, "a replica whose clock is ahead cannot take a lease early");
}
