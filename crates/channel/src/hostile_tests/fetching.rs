//! Nodes that request too much, too often or nothing, on a paused clock.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::join_all};
use gpuaas_trust::Authority;
use gpuaas_wire::session::{RenewRequest, path};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::AsyncReadExt, task::JoinHandle, time::Instant};

use super::control_plane::{MachineClock, Rows, now, presented, send_request};
use crate::{
    ChannelOptions, ProxyProtocol,
    channel::Shared,
    fetch,
    link::{Body, empty, full},
};

const SECRET: &str = "/v1/secrets/0198c0de-7a3b-7c11-9b54-0242ac120002";
/// Upper bound of the time that an immediately answered request takes.
const SETTLE_TIME: Duration = Duration::from_secs(1);

struct FetchServer {
    authority: Authority,
    rows: Arc<Rows>,
    shared: Arc<Shared>,
}

impl FetchServer {
    fn new() -> Self {
        let rows = Arc::new(Rows::default());
        let options = ChannelOptions {
            unreachable_after: Duration::from_secs(15),
            peers: None,
            proxies: ProxyProtocol::default(),
            clock: Arc::new(MachineClock),
        };
        let authority = Authority::generate("cp-1", now()).unwrap();
        Self { authority, shared: Shared::new(&options).0, rows }
    }

    /// Opens a connection of a node on which nothing was sent yet; returns its near end and the task that serves it.
    fn open(&self, number: u128) -> (tokio::io::DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(16 * 1_024);
        let place = self.shared.connections.enter(presented(&self.authority, number, now())).unwrap();
        let serving = tokio::spawn(fetch::serve(self.shared.clone(), self.rows.clone(), Arc::new(place), far));
        (near, serving)
    }

    /// Opens an HTTP/2 connection of a node with a stream window of `window_bytes`; returns its sender and the task that serves it.
    async fn fetch(&self, number: u128, window_bytes: u32) -> (SendRequest<Body>, JoinHandle<()>) {
        let (near, serving) = self.open(number);
        let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        http.initial_stream_window_size(window_bytes);
        let (sender, connection) = http.handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        (sender, serving)
    }
}

fn artifact(sender: &mut SendRequest<Body>) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
    let request = Request::get("https://control-plane/v1/artifacts/00").body(empty()).unwrap();
    sender.send_request(request)
}

#[tokio::test(start_paused = true)]
async fn idle_connection_ends_after_a_minute() {
    let server = FetchServer::new();
    let began = Instant::now();
    let (_silent, silent) = server.open(1);
    let (mut sender, idle) = server.fetch(1, 65_535).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(send_request(&mut sender, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
    silent.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 60, "a connection without a preface ends too");
    assert_eq!(send_request(&mut sender, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
    idle.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 120);
    assert!(server.shared.connections.nodes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unread_response_ends_and_a_slowly_read_one_does_not() {
    let server = FetchServer::new();
    let (mut greedy, stalled) = server.fetch(1, 65_535).await;
    let (mut patient, slow) = server.fetch(2, 65_535).await;
    let untaken = artifact(&mut greedy).await.unwrap();
    let mut taken = artifact(&mut patient).await.unwrap().into_body();
    let began = Instant::now();
    for _ in 0..20 {
        let mut bytes = 0;
        while bytes < 128 * 1_024 {
            bytes += taken.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert!(!slow.is_finished() && stalled.is_finished());
    assert!(began.elapsed() > Duration::from_secs(300));
    let broken = untaken.into_body().collect().now_or_never();
    assert!(broken.is_some_and(|bytes| bytes.is_err()));
}

#[tokio::test(start_paused = true)]
async fn little_is_buffered_for_a_client_that_does_not_read() {
    let server = FetchServer::new();
    let (far, _serving) = server.open(1);
    let (near, relay) = tokio::io::duplex(16 * 1_024);
    let ((mut from_client, mut to_client), (from_server, mut to_server)) =
        (tokio::io::split(relay), tokio::io::split(far));
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server.take(32 * 1_024), &mut to_client).await;
        std::future::pending::<()>().await;
    });
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // Large windows, so that HTTP/2 flow control does not limit the server; the relay stops reading after 32 KiB.
    http.initial_stream_window_size(1 << 30).initial_connection_window_size(1 << 30);
    let (mut sender, connection) = http.handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    let _untaken = artifact(&mut sender).await.unwrap();
    tokio::time::sleep(SETTLE_TIME).await;
    let read = server.rows.artifact_bytes.load(Ordering::SeqCst);
    assert!((64 * 1_024..=256 * 1_024).contains(&read), "{read}");
}

#[tokio::test(start_paused = true)]
async fn a_node_has_eight_requests_at_once_over_all_its_connections() {
    let server = FetchServer::new();
    let began = Instant::now();
    let mut senders = Vec::new();
    for _ in 0..4 {
        senders.push(server.fetch(1, 65_535).await);
    }
    let (mut other, _serving) = server.fetch(2, 65_535).await;
    let asking = senders.iter_mut().flat_map(|(sender, _)| [artifact(sender), artifact(sender), artifact(sender)]);
    let answers: Vec<Response<Incoming>> = join_all(asking).await.into_iter().map(Result::unwrap).collect();
    let count = |status| answers.iter().filter(|answer| answer.status() == status).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS)), (8, 4));
    assert_eq!(began.elapsed().as_secs(), 10, "requests wait for a permit");
    assert_eq!(send_request(&mut other, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
    assert!(began.elapsed() < Duration::from_secs(11));
    drop(answers);
    let (status, _) = send_request(&mut senders[0].0, Method::GET, SECRET, empty()).await;
    assert_eq!(status, StatusCode::OK, "dropped responses free permits");
}

#[tokio::test(start_paused = true)]
async fn body_that_does_not_arrive_times_out() {
    let server = FetchServer::new();
    let (mut sender, _serving) = server.fetch(1, 65_535).await;
    for (method, path) in [(Method::PUT, SECRET), (Method::POST, path::RENEW)] {
        let began = Instant::now();
        let never = futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
        let answer = send_request(&mut sender, method, path, StreamBody::new(never).boxed_unsync()).await;
        assert_eq!(answer, (StatusCode::REQUEST_TIMEOUT, "body_too_slow".to_owned()), "{path}");
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_renews_a_few_times_and_then_once_a_minute() {
    let server = FetchServer::new();
    let renewal = || full(serde_json::to_vec(&RenewRequest { csr: "a request".to_owned(), clock: None }).unwrap());
    let renewed = async || {
        let (mut sender, _serving) = server.fetch(1, 65_535).await;
        send_request(&mut sender, Method::POST, path::RENEW, renewal()).await
    };
    let often = (StatusCode::TOO_MANY_REQUESTS, "rate_limited".to_owned());
    for _ in 0..4 {
        assert_eq!(renewed().await.0, StatusCode::OK);
    }
    assert_eq!(renewed().await, often);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(renewed().await.0, StatusCode::OK);
    assert_eq!(renewed().await, often);
    assert_eq!(*server.rows.renewed.lock().unwrap(), 5);
}
