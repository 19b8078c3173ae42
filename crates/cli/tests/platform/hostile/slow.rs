//! Request bodies that never arrive in full.

use std::time::{Duration, Instant};

use super::JSON;
use crate::{
    raw::{bearer, send, write_then_wait},
    world::{Platform, WAIT_MAX},
};

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_body_times_out_and_closes_the_connection() {
    let platform = Platform::start(0);
    let authorization = format!("authorization: {}", bearer(&platform));
    let heads = [
        format!("POST /api/v1/projects HTTP/1.1\r\n{authorization}"),
        format!("POST /api/v1/projects HTTP/1.1\r\nidempotency-key: slow\r\n{authorization}"),
        format!("POST /api/v1/nodes/nobody/ping HTTP/1.1\r\n{authorization}"),
        "POST /api/v1/enroll HTTP/1.1".to_owned(),
    ];
    let began = Instant::now();
    let waits = heads.iter().map(|head| {
        let text = format!("{head}\r\nhost: x\r\ncontent-type: {}\r\ncontent-length: 100\r\n\r\n{{\"name\":", JSON.1);
        let platform = &platform;
        async move { write_then_wait(platform, &text).await }
    });
    for answer in futures::future::join_all(waits).await {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("\"code\":\"body_too_slow\"") && answer.contains("connection: close"), "{answer}");
    }
    let took = began.elapsed();
    assert!((Duration::from_secs(19)..WAIT_MAX).contains(&took), "{took:?}");
    let listed = platform.client().list_projects().await.expect("it answers").items;
    assert!(listed.is_empty(), "{listed:?}");
    assert_eq!(send(&platform, http::Method::GET, "/livez", &[], "").await.status, 200);
}
