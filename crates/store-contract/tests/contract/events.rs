//! Events are numbered without gaps, in the order in which they become visible to readers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use gpuaas_model::{ProjectId, StreamName};
use gpuaas_store::Store;

use super::{
    database::{Database, run_concurrently},
    given,
};

async fn append(store: &Store, stream: StreamName) -> u64 {
    let mut tx = store.begin().await.unwrap();
    let event = tx.append_event(&given::event(stream)).await.unwrap();
    tx.commit().await.unwrap();
    event.sequence
}

async fn numbers(store: &Store, stream: StreamName) -> Vec<u64> {
    let events = store.read().await.unwrap().events(stream, 0, 1_000).await.unwrap();
    events.iter().map(|event| event.sequence).collect()
}

pub(crate) async fn each_stream_is_numbered_from_one(database: Database) {
    let store = database.open().await;
    let project = StreamName::Project(ProjectId::from_uuid(given::uuid()));
    assert_eq!(store.read().await.unwrap().last_sequence(project).await.unwrap(), 0);
    assert_eq!(append(&store, StreamName::Platform).await, 1);
    assert_eq!(append(&store, StreamName::Platform).await, 2);
    assert_eq!(append(&store, project).await, 1);
    assert_eq!(store.read().await.unwrap().last_sequence(StreamName::Platform).await.unwrap(), 2);
}

pub(crate) async fn many_writers_and_rollbacks_leave_no_gap(database: Database) {
    let stores = [database.open().await, database.open().await];
    let project = StreamName::Project(ProjectId::from_uuid(given::uuid()));
    let kept: Vec<usize> = run_concurrently(8, |writer| {
        let store = stores[writer % 2].clone();
        async move {
            let mut kept = 0;
            for turn in 0..10 {
                let mut tx = store.begin().await.unwrap();
                // Half of the writers append to the streams in the opposite order, which must not cause a deadlock.
                let streams =
                    if writer % 2 == 0 { [StreamName::Platform, project] } else { [project, StreamName::Platform] };
                for stream in streams {
                    tx.append_event(&given::event(stream)).await.unwrap();
                }
                if (writer + turn) % 3 == 0 {
                    drop(tx);
                } else {
                    tx.commit().await.unwrap();
                    kept += 1;
                }
            }
            kept
        }
    })
    .await;
    let expected: Vec<u64> = (1..=kept.iter().sum::<usize>() as u64).collect();
    assert_eq!(numbers(&stores[0], StreamName::Platform).await, expected);
    assert_eq!(numbers(&stores[1], project).await, expected);
}

pub(crate) async fn readers_see_event_numbers_in_order(database: Database) {
    let (writing, reading) = (database.open().await, database.open().await);
    let done = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let done = done.clone();
        async move {
            let (mut seen, mut looks) = (0, 0);
            while !(done.load(Ordering::Acquire) && looks > 0) {
                let mut reader = reading.read().await.unwrap();
                let last = reader.last_sequence(StreamName::Platform).await.unwrap();
                let events = reader.events(StreamName::Platform, 0, 1_000).await.unwrap();
                let found: Vec<_> = events.iter().map(|event| event.sequence).collect();
                assert_eq!(found, (1..=last).collect::<Vec<_>>(), "a lower number is missing");
                assert!(last >= seen, "the last number decreased");
                (seen, looks) = (last, looks + 1);
            }
        }
    });
    run_concurrently(6, |_| {
        let store = writing.clone();
        async move {
            for _ in 0..10 {
                append(&store, StreamName::Platform).await;
            }
        }
    })
    .await;
    done.store(true, Ordering::Release);
    watch.await.unwrap();
    assert_eq!(numbers(&writing, StreamName::Platform).await.len(), 60);
}

pub(crate) async fn events_are_read_in_order_after_a_number(database: Database) {
    let store = database.open().await;
    let written = given::event(StreamName::Platform);
    let mut tx = store.begin().await.unwrap();
    for _ in 0..5 {
        tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    }
    let last = tx.append_event(&written).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let part = reader.events(StreamName::Platform, 2, 3).await.unwrap();
    assert_eq!(part.iter().map(|event| event.sequence).collect::<Vec<_>>(), [3, 4, 5]);
    let rest = reader.events(StreamName::Platform, 5, 3).await.unwrap();
    assert_eq!(rest, [last]);
    assert_eq!((&rest[0].subject_id, &rest[0].data), (&written.subject_id, &written.data));
}
