//! Events are numbered without gaps, in the order in which they become visible to readers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use gpuaas_model::{EventKind, ProjectId, StreamName};
use gpuaas_store::{Change, Store};
use serde_json::json;

use super::{
    database::{Database, NOW, run_concurrently},
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

pub(crate) async fn an_event_for_every_project_takes_two_statements_and_the_next_number_of_each(database: Database) {
    let store = database.open().await;
    let projects: Vec<_> = (0..40).map(|index| given::project(&format!("team-{index}"))).collect();
    let (used, deleted) = (StreamName::Project(projects[0].id), StreamName::Project(projects[1].id));
    let mut tx = store.begin().await.unwrap();
    for project in &projects {
        tx.insert_project(project).await.unwrap();
    }
    tx.append_event(&given::event(used)).await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    tx.delete_project(&projects[1], NOW).await.unwrap();
    tx.commit().await.unwrap();
    let mut changes = store.changes();
    let before = store.counts().statements;
    let mut tx = store.begin().await.unwrap();
    let data = json!({ "version": "1" });
    tx.append_event_to_every_project(EventKind::ArtifactImported, ("release", "rke2/1"), None, &data).await.unwrap();
    assert_eq!(store.counts().statements - before, 2);
    tx.commit().await.unwrap();
    let mut hinted = Vec::new();
    while let Ok(change) = changes.try_recv() {
        hinted.push(change);
    }
    let mut reader = store.read().await.unwrap();
    for project in projects.iter().filter(|project| project.id != projects[1].id) {
        let stream = StreamName::Project(project.id);
        let sequence = if stream == used { 2 } else { 1 };
        let events = reader.events(stream, sequence - 1, 10).await.unwrap();
        assert_eq!(events.len(), 1, "{}", project.name);
        let event = &events[0];
        assert_eq!((event.sequence, event.kind), (sequence, EventKind::ArtifactImported));
        assert_eq!((event.subject_kind.as_str(), event.subject_id.as_str()), ("release", "rke2/1"));
        assert_eq!((&event.data, event.correlation), (&data, None));
        assert!(hinted.contains(&Change::Event { stream, sequence }), "{}", project.name);
    }
    assert_eq!(reader.last_sequence(deleted).await.unwrap(), 0, "a deleted project gets no event");
    assert_eq!(reader.last_sequence(StreamName::Platform).await.unwrap(), 1, "neither does the platform");
    drop(reader);
    assert_eq!(append(&store, used).await, 3);
}
