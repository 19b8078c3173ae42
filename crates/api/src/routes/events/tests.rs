use gpuaas_model::{EventKind, ProjectId};
use gpuaas_store::{NewEvent, StoreOptions};
use gpuaas_test_support::{DatabaseFile, ManualClock};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

fn id(number: u128) -> WorkloadId {
    WorkloadId::from_uuid(Uuid::from_u128(number))
}

/// An event about a workload itself, or about `subject` of it.
fn event(stream: StreamName, subject: &'static str, of: WorkloadId) -> NewEvent {
    let (subject_id, data) = match subject {
        "workload" => (of.to_string(), json!({})),
        _ => (Uuid::nil().to_string(), json!({ "workload": of })),
    };
    NewEvent { stream, kind: EventKind::StepChanged, subject_kind: subject, subject_id, correlation: None, data }
}

#[tokio::test]
async fn controller_gets_events_of_its_workload_alone() {
    let database = DatabaseFile::new();
    let options = StoreOptions { url: database.url() };
    let store = Store::open(&options, Arc::new(ManualClock::default())).await.unwrap();
    let stream = StreamName::Project(ProjectId::from_uuid(Uuid::from_u128(9)));
    let (own, other) = (id(1), id(2));
    let mut tx = store.begin().await.unwrap();
    for subject in ["workload", "member", "step", "task", "operation"] {
        tx.append_event(&event(stream, subject, own)).await.unwrap();
        tx.append_event(&event(stream, subject, other)).await.unwrap();
    }
    // An allocation belongs to no workload, and steps of earlier versions do not name theirs.
    for (subject_kind, data) in
        [("allocation", json!({})), ("step", json!({ "operation": own })), ("step", Value::Null)]
    {
        let of_none = NewEvent { data, subject_kind, ..event(stream, "step", own) };
        tx.append_event(&of_none).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let sequences = |events: &[EventRecord]| events.iter().map(|event| event.sequence).collect::<Vec<_>>();
    let (all, next) = page(&mut reader, (stream, None), 0, 200).await.unwrap_or_else(|_| panic!("a page"));
    assert_eq!((sequences(&all), next), ((1..=13).collect(), None));
    let (mine, next) = page(&mut reader, (stream, Some(own)), 0, 200).await.unwrap_or_else(|_| panic!("a page"));
    assert_eq!((sequences(&mine), next), (vec![1, 3, 5, 7, 9], None));
    let (first, next) = page(&mut reader, (stream, Some(own)), 0, 2).await.unwrap_or_else(|_| panic!("a page"));
    assert_eq!((sequences(&first), next), (vec![1, 3], Some(3)));
    let (rest, next) = page(&mut reader, (stream, Some(own)), 3, 200).await.unwrap_or_else(|_| panic!("a page"));
    assert_eq!((sequences(&rest), next), (vec![5, 7, 9], None));
    let (none, next) = page(&mut reader, (stream, Some(id(3))), 0, 200).await.unwrap_or_else(|_| panic!("a page"));
    assert_eq!((sequences(&none), next), (Vec::new(), None));
}
