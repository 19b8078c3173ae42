//! Hints are sent after commits.

use gpuaas_model::{OperationState, StreamName};
use gpuaas_store::{ByPlatform, Change, OperationRecord};
use tokio::sync::broadcast::error::TryRecvError;

use super::{database::Database, given};

pub(crate) async fn a_hint_comes_after_the_commit(database: Database) {
    let store = database.open().await;
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    assert_eq!(changes.try_recv(), Err(TryRecvError::Empty), "nothing is committed");
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv(), Ok(Change::Event { stream: StreamName::Platform, sequence: 1 }));
    let events = store.read().await.unwrap().events(StreamName::Platform, 0, 9).await.unwrap();
    assert_eq!(events.len(), 1, "the hinted event can be read");
    assert_eq!(changes.try_recv(), Err(TryRecvError::Empty), "one commit, one hint");
}

pub(crate) async fn without_a_commit_there_is_no_hint(database: Database) {
    let store = database.open().await;
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    drop(tx);
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv(), Err(TryRecvError::Empty));
}

pub(crate) async fn an_accepted_operation_and_a_request_to_cancel_are_hinted(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let operation = given::operation(&train);
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&operation, &[]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.request_cancel(operation.id).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv(), Ok(Change::Operation(operation.id)));
    assert_eq!(changes.try_recv(), Ok(Change::Operation(operation.id)));
    assert!(store.read().await.unwrap().operation(operation.id).await.unwrap().cancel_requested);
}

pub(crate) async fn only_an_open_operation_of_the_platform_yields_and_is_hinted(database: Database) {
    let store = database.open().await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let by_person = given::operation(&train);
    let by_platform = Some(ByPlatform { reason: "a file was changed".to_owned(), yields: false });
    let own = OperationRecord { by_platform, ..given::operation(&train) };
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&by_person, &[]).await.unwrap();
    assert!(!tx.request_yield(by_person.id).await.unwrap(), "a person requested it");
    let ended = OperationRecord { state: OperationState::Succeeded, ..by_person.clone() };
    tx.update_operation(&ended, by_person.state).await.unwrap();
    tx.insert_operation(&own, &[]).await.unwrap();
    tx.commit().await.unwrap();
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    assert!(tx.request_yield(own.id).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(changes.try_recv(), Ok(Change::Operation(own.id)));
    let yielding = store.read().await.unwrap().operation(own.id).await.unwrap();
    assert!(yielding.is_ending() && !yielding.cancel_requested);
    let mut tx = store.begin().await.unwrap();
    let over = OperationRecord { state: OperationState::Cancelled, ..yielding.clone() };
    tx.update_operation(&over, yielding.state).await.unwrap();
    assert!(!tx.request_yield(own.id).await.unwrap(), "it has ended");
}
