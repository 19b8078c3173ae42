//! Event streams with many subscribers: each appended event is read and serialized once for all of them.
//!
//! Guarantees: every subscriber gets every event of the stream in order and exactly once. A subscriber that is behind the cached events
//! reads rows itself until it has caught up. Memory is bounded by [`CACHED_MAX`] events per subscribed stream.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex as StdMutex, PoisonError, Weak},
};

use axum::response::sse::Event as SseEvent;
use gpuaas_model::{StreamName, WorkloadId};
use gpuaas_store::{EventRecord, Store, StoreError};
use tokio::sync::Mutex;

use crate::convert;

/// Events per read.
const BATCH: u32 = 200;
/// Newest events of a stream that are cached for its subscribers.
const CACHED_MAX: usize = 256;

/// Streams with subscribers.
#[derive(Default)]
pub(crate) struct Feeds(StdMutex<HashMap<StreamName, Weak<Feed>>>);

/// A stream, while it has subscribers.
pub(crate) struct Feed {
    stream: StreamName,
    newest: Mutex<Newest>,
}

/// A serialized event with its number.
#[derive(Clone)]
pub(crate) struct SerializedEvent {
    pub(crate) sequence: u64,
    /// The workload that it is about.
    pub(crate) workload: Option<WorkloadId>,
    pub(crate) event: SseEvent,
}

/// The newest events, without gaps.
#[derive(Default)]
struct Newest(VecDeque<SerializedEvent>);

impl Feeds {
    /// Returns the feed of a stream.
    pub(crate) fn of(&self, stream: StreamName) -> Arc<Feed> {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.get(&stream).and_then(Weak::upgrade) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed { stream, newest: Mutex::default() });
        feeds.insert(stream, Arc::downgrade(&feed));
        feed
    }
}

impl Feed {
    /// Returns events after number `after`, oldest first; empty only if there are none.
    pub(crate) async fn events_after(&self, store: &Store, after: u64) -> Result<Vec<SerializedEvent>, StoreError> {
        let mut newest = self.newest.lock().await;
        if let Some(cached) = newest.events_after(after) {
            return Ok(cached);
        }
        // A subscriber at the end of the cache reads for all others there: they wait for the lock.
        if newest.last().is_none_or(|last| last == after) {
            let read = self.read(store, after).await?;
            newest.add(read.clone());
            return Ok(read);
        }
        drop(newest);
        let read = self.read(store, after).await?;
        if read.len() < BATCH as usize {
            self.newest.lock().await.replace(&read);
        }
        Ok(read)
    }

    async fn read(&self, store: &Store, after: u64) -> Result<Vec<SerializedEvent>, StoreError> {
        let events = store.read_once().await?.events(self.stream, after, BATCH).await?;
        Ok(events.into_iter().map(serialize).collect())
    }
}

impl Newest {
    fn last(&self) -> Option<u64> {
        self.0.back().map(|sent| sent.sequence)
    }

    /// Returns the cached events after `after`; `None` if there are none, or if the event that follows `after` is not cached.
    fn events_after(&self, after: u64) -> Option<Vec<SerializedEvent>> {
        let begin = self.0.partition_point(|sent| sent.sequence <= after);
        let next = self.0.get(begin).filter(|next| next.sequence == after + 1);
        next.map(|_| self.0.iter().skip(begin).cloned().collect())
    }

    /// Appends the events that follow the last one.
    fn add(&mut self, read: Vec<SerializedEvent>) {
        self.0.extend(read);
        let excess = self.0.len().saturating_sub(CACHED_MAX);
        self.0.drain(..excess);
    }

    /// Replaces the cached events by newer ones, which need not follow them directly.
    fn replace(&mut self, read: &[SerializedEvent]) {
        if read.last().is_some_and(|newest| self.last().is_none_or(|last| last < newest.sequence)) {
            self.0 = read.iter().cloned().collect();
        }
    }
}

/// Returns the workload that an event is about; `None` for other events, and for steps and tasks that an earlier version recorded.
pub(crate) fn workload_of(event: &EventRecord) -> Option<WorkloadId> {
    match event.subject_kind.as_str() {
        "workload" => event.subject_id.parse().ok(),
        _ => event.data["workload"].as_str()?.parse().ok(),
    }
}

fn serialize(event: EventRecord) -> SerializedEvent {
    let (sequence, workload) = (event.sequence, workload_of(&event));
    let shown = serde_json::to_string(&convert::event(event)).unwrap_or_default();
    SerializedEvent { sequence, workload, event: SseEvent::default().id(sequence.to_string()).data(shown) }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{EventKind, Timestamp};
    use gpuaas_store::{NewEvent, StoreOptions};
    use gpuaas_test_support::{DatabaseFile, ManualClock};

    use super::*;

    async fn store(database: &DatabaseFile) -> Store {
        Store::open(&StoreOptions { url: database.url() }, Arc::new(ManualClock::default())).await.unwrap()
    }

    async fn append(store: &Store, count: u64) {
        let mut tx = store.begin().await.unwrap();
        for number in 0..count {
            let event = NewEvent {
                stream: StreamName::Platform,
                kind: EventKind::NodeRegistered,
                subject_kind: "node",
                subject_id: number.to_string(),
                correlation: None,
                data: serde_json::json!({}),
            };
            tx.append_event(&event).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    #[test]
    fn event_of_a_credential_or_a_release_is_about_no_workload() {
        for (kind, subject_kind, data) in [
            (EventKind::TokenCreated, "token", serde_json::json!({})),
            (EventKind::ServiceAccountCreated, "service_account", serde_json::json!({})),
            (EventKind::SessionCreated, "session", serde_json::json!({})),
            (EventKind::ArtifactImported, "release", serde_json::json!({ "app": "rke2", "version": "1" })),
        ] {
            let event = EventRecord {
                stream: StreamName::Platform,
                sequence: 1,
                at: Timestamp::from_millis(1),
                kind,
                subject_kind: subject_kind.to_owned(),
                subject_id: "0198c0de-0000-7000-8000-000000000001".to_owned(),
                correlation: None,
                data,
            };
            assert_eq!(workload_of(&event), None, "a controller does not get it: {event:?}");
        }
    }

    #[tokio::test]
    async fn subscribers_that_wait_for_the_same_event_share_one_read() {
        let database = DatabaseFile::new();
        let store = store(&database).await;
        let feed = Feeds::default().of(StreamName::Platform);
        for after in 0..3 {
            append(&store, 1).await;
            let before = store.counts().statements;
            let read = futures::future::join_all((0..50).map(|_| feed.events_after(&store, after))).await;
            for read in read {
                let numbers: Vec<u64> = read.unwrap().iter().map(|sent| sent.sequence).collect();
                assert_eq!(numbers, [after + 1]);
            }
            assert_eq!(store.counts().statements - before, 1, "after {after}");
        }
    }

    #[tokio::test]
    async fn subscribers_get_every_event_once_and_in_order() {
        let database = DatabaseFile::new();
        let store = store(&database).await;
        let feeds = Feeds::default();
        let feed = feeds.of(StreamName::Platform);
        append(&store, 700).await;
        // One from the start, one from the middle and one from the end, each at a different rate.
        let mut followers = [(0_u64, 1), (350, 3), (700, 7)];
        for round in 0..120_u64 {
            append(&store, if round % 40 == 0 { 300 } else { round % 3 }).await;
            for (after, interval) in followers.iter_mut().filter(|(_, interval)| round % interval == 0) {
                let _ = interval;
                for sent in feed.events_after(&store, *after).await.unwrap() {
                    assert_eq!(sent.sequence, *after + 1);
                    *after = sent.sequence;
                }
            }
        }
        let last = store.read().await.unwrap().last_sequence(StreamName::Platform).await.unwrap();
        for (mut after, _) in followers {
            while after < last {
                let read = feed.events_after(&store, after).await.unwrap();
                assert_eq!(read.first().map(|sent| sent.sequence), Some(after + 1));
                after = read.last().unwrap().sequence;
            }
        }
        assert!(feed.newest.lock().await.0.len() <= CACHED_MAX);
        drop(feed);
        feeds.of(StreamName::Project(gpuaas_model::ProjectId::from_uuid(uuid::Uuid::from_u128(1))));
        assert_eq!(feeds.0.lock().unwrap().len(), 1, "a stream without subscribers is dropped");
    }
}
