//! Idempotency keys: responses of abandoned, refused and completed requests, and stored responses that expired or were forged.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gpuaas_api_types::RegisterNode;
use gpuaas_client::Client;
use http::Method;

use crate::{
    raw::{HttpResponse, bearer, send},
    world::{Platform, eventually},
};

async fn ping(platform: Arc<Platform>) -> HttpResponse {
    let token = bearer(&platform);
    let headers = [("authorization", token.as_str()), ("idempotency-key", "once")];
    send(&platform, Method::POST, "/api/v1/nodes/demo-1/ping", &headers, "").await
}

/// Issues an enrollment string under the key `once`.
async fn enroll(platform: &Platform) -> HttpResponse {
    enroll_as(platform, "once").await
}

/// Issues an enrollment string under the given key.
async fn enroll_as(platform: &Platform, key: &str) -> HttpResponse {
    let token = bearer(platform);
    let json = ("content-type", "application/json");
    let headers = [("authorization", token.as_str()), ("idempotency-key", key), json];
    send(platform, Method::POST, "/api/v1/nodes/gpu-01/enrollment", &headers, "{}").await
}

async fn register(platform: &Platform) {
    let machine = RegisterNode { name: "gpu-01".into(), ..RegisterNode::default() };
    platform.client().register_node(&machine).await.expect("registered");
}

fn is_replayed(response: &HttpResponse) -> bool {
    response.headers.contains_key("idempotency-replayed")
}

/// Counts the pings only: nodes also get other tasks when they enroll.
async fn ping_count(client: &Client) -> usize {
    let tasks = client.list_tasks(Some("demo-1".to_owned()), None).await.expect("tasks").items;
    tasks.iter().filter(|task| task.task_type == "host.noop").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_request_runs_once_and_its_retry_gets_the_response() {
    let platform = Arc::new(Platform::start(1));
    let client = platform.client();
    platform.signal_agent(1, "STOP");
    let first = tokio::spawn(ping(platform.clone()));
    eventually("the task is not sent", async || ping_count(&client).await == 1).await;
    // Aborting the client closes its connection.
    first.abort();
    assert!(first.await.expect_err("the request was aborted").is_cancelled());
    let second = tokio::spawn(ping(platform.clone()));
    // Enough time for a second ping to be sent, which must not happen.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(ping_count(&client).await, 1, "the second request sent a second task");
    platform.signal_agent(1, "CONT");
    let response = second.await.expect("a response");
    assert_eq!((response.status, is_replayed(&response)), (200, true), "{response:?}");
    assert_eq!(response.body["task"]["state"], "succeeded", "{response:?}");
    assert_eq!(ping_count(&client).await, 1, "the task was sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_can_be_retried_under_its_key() {
    let platform = Platform::start(0);
    let first = enroll(&platform).await;
    assert_eq!((first.status, first.code()), (404, "not_found"), "{first:?}");
    register(&platform).await;
    let second = enroll(&platform).await;
    assert_eq!((second.status, is_replayed(&second)), (201, false), "{second:?}");
    let third = enroll(&platform).await;
    assert_eq!((is_replayed(&third), &third.body), (true, &second.body), "the response is not replayed");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_expires_after_a_day() {
    let platform = Platform::start(0);
    register(&platform).await;
    let first = enroll(&platform).await;
    let age = async |by: i64| {
        let store = rusqlite::Connection::open(platform.file("data/server/gpuaas.db")).expect("the store");
        let sql = "update idempotency set created_at = created_at - $1, \
                   doc = json_set(doc, '$.created_at', json_extract(doc, '$.created_at') - $1)";
        assert_eq!(store.execute(sql, [by]).expect("written"), 1);
        store.close().expect("closed");
    };
    let day = 24 * 3_600 * 1_000;
    // First nearly a day, then more than a day.
    age(day - 60_000).await;
    assert_eq!(enroll(&platform).await.body, first.body, "the response is not replayed within a day");
    age(60_001).await;
    let second = enroll(&platform).await;
    assert_eq!((second.status, is_replayed(&second)), (201, false), "{second:?}");
    assert_eq!(enroll(&platform).await.body, second.body, "the new response is not replayed");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_forged_in_the_database_is_not_replayed() {
    let platform = Platform::start(0);
    register(&platform).await;
    let first = enroll(&platform).await;
    assert_eq!((first.status, is_replayed(&enroll(&platform).await)), (201, true));
    let folder = platform.ready()["ca_file"].as_str().map(PathBuf::from).expect("a path");
    let store = rusqlite::Connection::open(folder.with_file_name("gpuaas.db")).expect("the store");
    let moved = "insert into idempotency (token_id, key, created_at, doc) select token_id, 'moved', created_at, doc \
                 from idempotency where key = 'once'";
    store.execute(moved, []).expect("moved");
    let response = enroll_as(&platform, "moved").await;
    assert_eq!((response.status, response.code()), (500, "internal"), "a moved response was replayed: {response:?}");
    store.execute("delete from idempotency where key = 'moved'", []).expect("removed");
    let changed = store.execute("update idempotency set doc = replace(doc, '201', '204')", []);
    assert_eq!(changed.expect("changed"), 1);
    store.close().expect("closed");
    let response = enroll(&platform).await;
    let outcome = (response.status, response.code(), is_replayed(&response));
    assert_eq!(outcome, (500, "internal", false), "a changed response was replayed: {response:?}");
}
