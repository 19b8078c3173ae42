//! Replicas: which are alive, which node each holds, and the takeover of a dead replica's nodes.

use std::time::Duration;

use gpuaas_model::{NodeId, OperationId, ReplicaId};
use gpuaas_store::{Change, Eviction, ReplicaRecord, SessionRecord, Store};

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

const LONG: Duration = Duration::from_secs(60);

fn replica() -> ReplicaRecord {
    ReplicaRecord {
        id: ReplicaId::from_uuid(given::uuid()),
        address: Some("127.0.0.1:7445".into()),
        channel: "127.0.0.1:7444".into(),
        api_url: "https://127.0.0.1:7443".into(),
        version: "0.1.0".into(),
        started_at: NOW,
        sealing_keys: Vec::new(),
        is_key_file_old: false,
    }
}

fn session(node: NodeId, of: &ReplicaRecord) -> SessionRecord {
    SessionRecord {
        node,
        connection: given::uuid(),
        instance: "one".into(),
        replica: of.id,
        address: of.address.clone(),
        since: NOW,
        key_set_version: 1,
        keys_given_at: None,
    }
}

async fn node(store: &Store, name: &str) -> NodeId {
    let node = given::node(name);
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    node.id
}

async fn known(store: &Store) -> Vec<(ReplicaId, bool)> {
    let lives = store.read().await.unwrap().replicas().await.unwrap();
    lives.iter().map(|life| (life.replica.id, life.time_left > Duration::ZERO)).collect()
}

pub(crate) async fn replica_is_alive_while_it_renews_its_lease(database: Database) {
    let store = database.open().await;
    let (alive, dead) = (replica(), replica());
    store.join_replica(&alive, LONG).await.unwrap();
    store.join_replica(&dead, Duration::ZERO).await.unwrap();
    assert_eq!(known(&store).await, [(alive.id, true), (dead.id, false)]);
    assert!(store.renew_replica(dead.id, LONG).await.unwrap(), "the replica was not evicted");
    assert_eq!(known(&store).await, [(alive.id, true), (dead.id, true)]);
}

pub(crate) async fn only_expired_replicas_are_evicted_and_each_once(database: Database) {
    let store = database.open().await;
    let (alive, dead) = (replica(), replica());
    store.join_replica(&alive, LONG).await.unwrap();
    store.join_replica(&dead, Duration::ZERO).await.unwrap();
    assert!(!store.evict_replica(alive.id, Eviction::IfExpired).await.unwrap(), "the replica is alive");
    let stores = [store.clone(), database.open().await];
    let id = dead.id;
    let evicted = run_concurrently(8, |index| {
        let store = stores[index % 2].clone();
        async move { store.evict_replica(id, Eviction::IfExpired).await.unwrap() }
    })
    .await;
    assert_eq!(evicted.iter().filter(|buried| **buried).count(), 1, "exactly one eviction succeeds");
    assert_eq!(known(&store).await, [(alive.id, true)]);
    assert!(!store.renew_replica(dead.id, LONG).await.unwrap(), "an evicted replica cannot renew its lease");
    assert!(
        store.evict_replica(alive.id, Eviction::Unconditional).await.unwrap(),
        "a replica that shuts down is evicted at once"
    );
    assert_eq!(known(&store).await, []);
}

pub(crate) async fn leases_and_sessions_of_an_evicted_replica_are_released_and_hinted(database: Database) {
    let store = database.open().await;
    let (dead, alive) = (replica(), replica());
    let nodes = [node(&store, "gpu-1").await, node(&store, "gpu-2").await];
    for (replica, node) in [(&dead, nodes[0]), (&alive, nodes[1])] {
        store.join_replica(replica, LONG).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        tx.put_session(&session(node, replica)).await.unwrap();
        tx.commit().await.unwrap();
    }
    let operations = [(); 2].map(|()| OperationId::from_uuid(given::uuid()));
    for (operation, holder) in [(operations[0], &dead), (operations[1], &alive)] {
        store.acquire_lease(&format!("operation/{operation}"), holder.id, LONG).await.unwrap().unwrap();
    }
    store.acquire_lease("allocation/one", dead.id, LONG).await.unwrap().unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.operations_driven_by(dead.id).await.unwrap(), [operations[0]]);
    assert_eq!(reader.sessions_of(dead.id).await.unwrap().len(), 1);
    drop(reader);
    let mut changes = store.changes();
    assert!(store.evict_replica(dead.id, Eviction::Unconditional).await.unwrap());
    assert_eq!(changes.recv().await.unwrap(), Change::Operation(operations[0]));
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.session(nodes[0]).await.unwrap(), None);
    assert_eq!(reader.session(nodes[1]).await.unwrap().map(|session| session.replica), Some(alive.id));
    assert_eq!(reader.operations_driven_by(dead.id).await.unwrap(), []);
    drop(reader);
    for (name, fence) in [
        (format!("operation/{}", operations[0]), Some(2)),
        ("allocation/one".to_owned(), Some(2)),
        (format!("operation/{}", operations[1]), Some(1)),
    ] {
        let taken = store.acquire_lease(&name, alive.id, LONG).await.unwrap();
        assert_eq!(taken.map(|lease| lease.fence), fence, "{name}");
    }
}

pub(crate) async fn end_of_an_older_connection_keeps_the_newer_session(database: Database) {
    let store = database.open().await;
    let (here, there) = (replica(), replica());
    let node = node(&store, "gpu-1").await;
    let (older, newer) = (session(node, &here), session(node, &there));
    let mut tx = store.begin().await.unwrap();
    tx.put_session(&older).await.unwrap();
    tx.put_session(&newer).await.unwrap();
    assert!(!tx.end_session(node, older.connection).await.unwrap(), "a newer connection has replaced it");
    assert_eq!(tx.session(node).await.unwrap(), Some(newer.clone()));
    assert!(tx.end_session(node, newer.connection).await.unwrap());
    assert_eq!(tx.session(node).await.unwrap(), None);
    tx.commit().await.unwrap();
}

pub(crate) async fn older_connection_does_not_replace_a_newer_session(database: Database) {
    let store = database.open().await;
    let (here, there) = (replica(), replica());
    let node = node(&store, "gpu-1").await;
    let (older, mut newer) = (session(node, &here), session(node, &there));
    newer.since = older.since.plus(Duration::from_millis(1));
    let mut tx = store.begin().await.unwrap();
    assert!(tx.put_session(&newer).await.unwrap());
    assert!(!tx.put_session(&older).await.unwrap());
    assert!(!tx.end_session(node, older.connection).await.unwrap(), "the end of the older connection changes nothing");
    assert_eq!(tx.session(node).await.unwrap(), Some(newer));
    tx.commit().await.unwrap();
}

pub(crate) async fn session_records_the_newest_key_set_until_it_ends(database: Database) {
    let store = database.open().await;
    let (here, there) = (replica(), replica());
    let node = node(&store, "gpu-1").await;
    let (older, newer) = (session(node, &here), session(node, &there));
    let mut tx = store.begin().await.unwrap();
    tx.put_session(&older).await.unwrap();
    tx.put_session(&newer).await.unwrap();
    for (connection, version, held) in [(newer.connection, 3, 3), (newer.connection, 2, 3), (older.connection, 7, 3)] {
        tx.set_session_keys(node, connection, version, NOW).await.unwrap();
        let session = tx.session(node).await.unwrap().expect("the node is connected");
        assert_eq!((session.connection, session.key_set_version), (newer.connection, held), "after {version}");
    }
    tx.end_session(node, newer.connection).await.unwrap();
    tx.set_session_keys(node, newer.connection, 9, NOW).await.unwrap();
    assert_eq!(tx.session(node).await.unwrap(), None, "an ended session is not recorded again");
    tx.commit().await.unwrap();
}

pub(crate) async fn live_replicas_share_a_fence_and_a_successor_gets_a_higher_one(database: Database) {
    let store = database.open().await;
    let (ada, bob) = (replica().id, replica().id);
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.shared_fence("node/one", ada, LONG).await.unwrap(), 1);
    assert_eq!(tx.shared_fence("node/one", bob, LONG).await.unwrap(), 1, "both replicas share the fence");
    assert_eq!(tx.shared_fence("node/one", ada, Duration::ZERO).await.unwrap(), 1);
    assert_eq!(tx.shared_fence("node/one", bob, LONG).await.unwrap(), 2, "the holder's lease has expired");
    assert_eq!(tx.shared_fence("node/one", ada, LONG).await.unwrap(), 2, "the earlier holder shares the new fence");
    tx.commit().await.unwrap();
}
