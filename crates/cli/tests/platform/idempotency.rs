//! Idempotency keys when the client disconnects before the answer.

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

fn is_replayed(answer: &HttpResponse) -> bool {
    answer.headers.contains_key("idempotency-replayed")
}

/// Counts the pings, because nodes also get other tasks when they enroll.
async fn tasks(client: &Client) -> usize {
    let tasks = client.list_tasks(Some("demo-1".to_owned()), None).await.expect("tasks").items;
    tasks.iter().filter(|task| task.task_type == "host.noop").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_request_runs_once_and_its_retry_gets_the_response() {
    let platform = Arc::new(Platform::start(1));
    let client = platform.client();
    platform.signal_agent(1, "STOP");
    let asking = tokio::spawn(ping(platform.clone()));
    eventually("the task is not sent", async || tasks(&client).await == 1).await;
    // Aborting the client closes its connection.
    asking.abort();
    assert!(asking.await.expect_err("the request was aborted").is_cancelled());
    let again = tokio::spawn(ping(platform.clone()));
    // Enough time for a second ping to be sent, which must not happen.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(tasks(&client).await, 1, "the first one is still under way");
    platform.signal_agent(1, "CONT");
    let answer = again.await.expect("an answer");
    assert_eq!((answer.status, answer.headers.contains_key("idempotency-replayed")), (200, true), "{answer:?}");
    assert_eq!(answer.body["task"]["state"], "succeeded", "{answer:?}");
    assert_eq!(tasks(&client).await, 1, "it was done once");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_can_be_retried_under_its_key() {
    let platform = Platform::start(0);
    let early = enroll(&platform).await;
    assert_eq!((early.status, early.code()), (404, "not_found"), "{early:?}");
    register(&platform).await;
    let later = enroll(&platform).await;
    assert_eq!((later.status, is_replayed(&later)), (201, false), "{later:?}");
    let again = enroll(&platform).await;
    assert_eq!((is_replayed(&again), &again.body), (true, &later.body), "the response is not replayed");
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
    assert_eq!(enroll(&platform).await.body, second.body);
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
    let given = enroll_as(&platform, "moved").await;
    assert_eq!((given.status, given.code()), (500, "internal"), "a moved response was replayed: {given:?}");
    store.execute("delete from idempotency where key = 'moved'", []).expect("removed");
    let changed = store.execute("update idempotency set doc = replace(doc, '201', '204')", []);
    assert_eq!(changed.expect("changed"), 1);
    store.close().expect("closed");
    let again = enroll(&platform).await;
    assert_eq!((again.status, again.code(), is_replayed(&again)), (500, "internal", false), "{again:?}");
}
