use std::sync::Arc;

use futures::FutureExt;
use gpuaas_model::{Clock, EventKind, Name, ProjectId, WorkloadId};
use gpuaas_store::{NewEvent, StoreOptions};
use gpuaas_test_support::{DatabaseFile, ManualClock, NOW};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

const PROJECT: ProjectId = ProjectId::from_uuid(Uuid::from_u128(1));
const OURS: WorkloadId = WorkloadId::from_uuid(Uuid::from_u128(2));
const THEIRS: WorkloadId = WorkloadId::from_uuid(Uuid::from_u128(3));

struct History {
    clock: Arc<ManualClock>,
    store: Store,
    _database: DatabaseFile,
}

impl History {
    async fn new() -> Self {
        let database = DatabaseFile::new();
        let clock = Arc::new(ManualClock::default());
        let store = Store::open(&StoreOptions { url: database.url() }, clock.clone()).await.unwrap();
        Self { clock, store, _database: database }
    }

    /// Appends an event of a member, a second after the previous one.
    async fn member(&self, workload: WorkloadId, member: &str) {
        self.clock.advance_millis(1_000);
        let data = json!({ "workload": workload, "member": member, "state": "ready", "health": "healthy" });
        self.append(EventKind::MemberChanged, ("member", "m".to_owned()), data).await;
    }

    async fn append(&self, kind: EventKind, (subject_kind, subject_id): (&'static str, String), data: Value) {
        let mut tx = self.store.begin().await.unwrap();
        let stream = StreamName::Project(PROJECT);
        let event = NewEvent { stream, kind, subject_kind, subject_id, correlation: None, data };
        tx.append_event(&event).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn reader(&self, range: Range, after: Option<u64>) -> EventReader {
        let name: Name = "train".parse().unwrap();
        let logs = WorkloadLogs { workload: OURS, name, project: PROJECT, journals: Vec::new() };
        EventReader::new(&self.store, &logs, &[LogSource::Event], range, after)
    }
}

/// Reads up to the present; a line is the number of its event.
async fn numbers(reader: &mut EventReader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(read) = reader.next(|| NOW).await {
        match read {
            Read::Line(line) => numbers.push(line.line.sequence.unwrap_or(0)),
            Read::CaughtUp => break,
            Read::Member(_) | Read::Problem(_) => {}
        }
    }
    numbers
}

#[tokio::test]
async fn only_events_of_the_workload_are_returned_from_a_time_or_a_number_on() {
    let history = History::new().await;
    for number in 0..500 {
        history.member(if number % 2 == 0 { OURS } else { THEIRS }, "server-1").await;
    }
    let everything: Vec<u64> = (1..=500).step_by(2).collect();
    assert_eq!(numbers(&mut history.reader(Range::default(), None)).await, everything);
    // The event with the number 1 was appended one second after the beginning.
    let since = Some(NOW.plus(std::time::Duration::from_secs(401)));
    let of_time = numbers(&mut history.reader(Range { since, ..Range::default() }, None)).await;
    assert_eq!(of_time, everything[200..]);
    assert_eq!(numbers(&mut history.reader(Range::default(), Some(495))).await, [497, 499]);
}

#[tokio::test]
async fn last_events_are_found_among_those_of_other_workloads() {
    let history = History::new().await;
    for number in 0..900 {
        history.member(if number % 100 == 0 { OURS } else { THEIRS }, "server-1").await;
    }
    let tail = Range { tail: Some(3), ..Range::default() };
    let found = numbers(&mut history.reader(tail, None)).await;
    assert_eq!(found[found.len() - 3..], [601, 701, 801]);
    assert!(found.len() < 6, "{found:?}: far more than the last ones are read");
}

#[tokio::test]
async fn follower_is_woken_by_a_commit_and_learns_of_members() {
    let history = History::new().await;
    history.member(OURS, "server-1").await;
    let mut reader = history.reader(Range { follow: true, ..Range::default() }, None);
    assert_eq!(numbers(&mut reader).await, [1]);
    history.member(THEIRS, "agent-7").await;
    assert!(reader.next(|| NOW).now_or_never().is_none(), "an event of another workload is returned");
    history.member(OURS, "agent-1").await;
    let Some(Read::Member(member)) = reader.next(|| NOW).await else { panic!("the member is not announced") };
    assert_eq!(member, "agent-1");
    let Some(Read::Line(line)) = reader.next(|| NOW).await else { panic!("no line") };
    let seen = (line.line.sequence, line.line.origin(), line.line.text, line.at);
    let expected = (Some(3), "member agent-1".to_owned(), "ready, healthy".to_owned(), history.clock.now());
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn removed_events_are_reported() {
    let history = History::new().await;
    for _ in 0..3 {
        history.member(OURS, "server-1").await;
    }
    // As if the events 4 to 9 had been removed: the reader is at 3, and its next event has a later number.
    let mut reader = history.reader(Range::default(), None);
    let event = |sequence| EventRecord {
        stream: StreamName::Project(PROJECT),
        sequence,
        at: NOW,
        kind: EventKind::WorkloadRequested,
        subject_kind: "workload".to_owned(),
        subject_id: OURS.to_string(),
        correlation: None,
        data: json!({}),
    };
    let mut rows = history.store.read().await.unwrap();
    reader.after = 3;
    reader.take(&mut rows, &event(10)).await.unwrap();
    let texts: Vec<String> = reader
        .pending
        .into_iter()
        .filter_map(|read| match read {
            Read::Line(line) | Read::Problem(line) => Some(line.line.text),
            Read::CaughtUp | Read::Member(_) => None,
        })
        .collect();
    assert_eq!(texts, ["events 4 to 9 were removed; see gpuaas archive list", "requested"]);
}

#[tokio::test]
async fn output_of_a_running_step_is_task_output_and_its_changes_are_events() {
    let history = History::new().await;
    let mut rows = history.store.read().await.unwrap();
    let mut describer = Describer::new(OURS, "train".parse().unwrap());
    let data = |state: &str, detail: Value| json!({ "workload": OURS, "operation": "o", "key": "server-1/start", "state": state, "attempts": 2, "detail": detail, "fault": null });
    let mut described = async |data: Value| {
        let event = EventRecord {
            stream: StreamName::Project(PROJECT),
            sequence: 1,
            at: NOW,
            kind: EventKind::StepChanged,
            subject_kind: "step".to_owned(),
            subject_id: "s".to_owned(),
            correlation: None,
            data,
        };
        let line = describer.describe(&mut rows, &event).await.unwrap().unwrap().line;
        (line.source.clone(), line.origin(), line.text)
    };
    let origin = || "step server-1/start".to_owned();
    let progress = described(data("running", json!("unpacking 40 %"))).await;
    assert_eq!(progress, ("task".to_owned(), origin(), "unpacking 40 %".to_owned()));
    let changed = described(data("backoff", json!("the service exited"))).await;
    assert_eq!(changed, ("event".to_owned(), origin(), "backoff, attempt 2, the service exited".to_owned()));
    let ended = described(data("succeeded", json!("waiting for the service"))).await;
    assert_eq!(ended, ("event".to_owned(), origin(), "succeeded, attempt 2".to_owned()), "it waits no longer");
}
