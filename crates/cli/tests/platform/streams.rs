//! Event streams end when the permission to read them ends.

use std::time::Duration;

use futures::{Stream, StreamExt};
use gpuaas_api_types::{CreateProject, CreateToken, Event};
use gpuaas_client::{Client, ClientError};

use crate::world::{Platform, WAIT_MAX};

/// Creates a token of a viewer of `ours`. Returns its id and a client that uses it.
async fn viewer(platform: &Platform, ttl_seconds: u64) -> (String, Client) {
    let ask = CreateToken {
        name: "viewer".into(),
        role: "viewer".into(),
        project: Some("ours".into()),
        ttl_seconds: Some(ttl_seconds),
    };
    let made = platform.client().create_token(&ask).await.expect("made");
    (made.token.id, platform.client_with(&made.secret))
}

async fn started() -> Platform {
    let platform = tokio::task::block_in_place(|| Platform::start(0));
    platform.client().create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    platform
}

/// Returns the time until the stream ended.
async fn end_of(events: impl Stream<Item = Result<Event, ClientError>>) -> Duration {
    let began = std::time::Instant::now();
    let mut events = std::pin::pin!(events);
    let ended = async { while events.next().await.is_some_and(|event| event.is_ok()) {} };
    tokio::time::timeout(WAIT_MAX, ended).await.expect("the stream does not end");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_only_for_the_revoked_token() {
    let platform = started().await;
    let (id, client) = viewer(&platform, 600).await;
    let (_, other) = viewer(&platform, 600).await;
    let events = client.follow_events(None, 0).await.expect("a stream");
    let mut others = Box::pin(other.follow_events(None, 0).await.expect("a stream"));
    platform.client().revoke_token(&id).await.expect("revoked");
    let took = end_of(events).await;
    assert!(took < Duration::from_secs(20), "the stream ended too late: {took:?}");
    let next = tokio::time::timeout(Duration::from_secs(2), others.next()).await;
    assert!(next.is_err() || next.is_ok_and(|next| next.is_some_and(|event| event.is_ok())), "the other stream ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_when_its_token_expires() {
    let platform = started().await;
    let (_, client) = viewer(&platform, 3).await;
    let took = end_of(client.follow_events(None, 0).await.expect("a stream")).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let over = client.whoami().await.expect_err("it has expired");
    assert!(format!("{over:?}").contains("unauthenticated"), "{over:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_may_hold_a_hundred_streams_at_once() {
    let platform = started().await;
    let (_, client) = viewer(&platform, 600).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(client.follow_events(None, 0).await.expect("a stream"));
    }
    let refused = client.follow_events(None, 0).await.err().expect("one too many");
    assert!(format!("{refused:?}").contains("rate_limited"), "{refused:?}");
    held.pop();
    crate::world::eventually("a closed stream is still counted", async || client.follow_events(None, 0).await.is_ok())
        .await;
}
