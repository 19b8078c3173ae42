//! Idempotency keys, when whoever asked does not stay for the answer.

use std::{sync::Arc, time::Duration};

use gpuaas_client::Client;
use http::Method;

use crate::{
    raw::{Answer, bearer, send},
    world::{Platform, eventually},
};

async fn ping(platform: Arc<Platform>) -> Answer {
    let token = bearer(&platform);
    let headers = [("authorization", token.as_str()), ("idempotency-key", "once")];
    send(&platform, Method::POST, "/api/v1/nodes/demo-1/ping", &headers, "").await
}

async fn tasks(client: &Client) -> usize {
    client.list_tasks(Some("demo-1".to_owned()), None).await.expect("tasks").items.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_began_and_did_not_stay_for_is_done_once_and_answered_to_whoever_asks_again() {
    let platform = Arc::new(Platform::start(1));
    let client = platform.client();
    platform.signal_agent(1, "STOP");
    let asking = tokio::spawn(ping(platform.clone()));
    eventually("the task is not sent", async || tasks(&client).await == 1).await;
    // Its connection ends with it.
    asking.abort();
    assert!(asking.await.expect_err("it was given up").is_cancelled());
    let again = tokio::spawn(ping(platform.clone()));
    // Time enough for what must not happen: that it gets its turn now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(tasks(&client).await, 1, "the first one is still under way");
    platform.signal_agent(1, "CONT");
    let answer = again.await.expect("an answer");
    assert_eq!((answer.status, answer.headers.contains_key("idempotency-replayed")), (200, true), "{answer:?}");
    assert_eq!(answer.body["task"]["state"], "succeeded", "{answer:?}");
    assert_eq!(tasks(&client).await, 1, "it was done once");
}
