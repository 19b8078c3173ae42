//! An engine that missed hints examines everything again that may wait for one of them.

use gpuaas_model::{EventKind, OperationState, StreamName};
use gpuaas_store::NewEvent;
use serde_json::json;

use crate::{kit::task, nodes::Reaction, site::Site};

/// More hints than the store keeps for a subscriber.
const TOO_MANY_HINTS: usize = 5_000;

/// Commits more changes than the channel of hints holds. The engine misses some, unless it reads them as fast as they come.
async fn flood(site: &Site) {
    let mut tx = site.engines.store().begin().await.unwrap();
    for _ in 0..TOO_MANY_HINTS {
        let event = NewEvent {
            stream: StreamName::Platform,
            kind: EventKind::ReplicaJoined,
            subject_kind: "replica",
            subject_id: String::new(),
            correlation: None,
            data: json!({}),
        };
        tx.append_event(&event).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn attempt_that_waits_for_its_node_tries_again_after_missed_hints() {
    let site = Site::of(1).await;
    site.engines.nodes.react([Reaction::Disconnected]);
    let (_, operation) = site.deploy(|of| vec![task("install", of, 0)]).await;
    let is_waiting = |detail: &str| detail.starts_with("waiting for the node");
    site.until(operation, "install", |step| step.detail.as_deref().is_some_and(is_waiting)).await;
    assert_eq!(site.engines.nodes.sent(), 1);
    // Rarely, the engine reads the hints of a flood as fast as they come, and misses none.
    for _ in 0..10 {
        flood(&site).await;
        if site.engines.nodes.sent() == 2 {
            break;
        }
    }
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Succeeded);
    assert_eq!(site.engines.nodes.sent(), 2);
}
