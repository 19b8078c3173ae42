use axum::{body::Body, routing::get};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body_util::BodyExt;
use hyper_util::rt::TokioExecutor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::progress::STALLED_AFTER;

/// The HTTP/2 connection preface with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const A_MINUTE: Duration = Duration::from_secs(60);

/// Opens a connection and serves it, with routes that respond slowly and routes that do not.
fn open(is_http2: bool) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(64 * 1_024);
    let long = || async {
        tokio::time::sleep(A_MINUTE * 10).await;
        "at last"
    };
    let router = Router::new().route("/long", get(long)).route("/", get(|| async { "here" }));
    let router = router.route("/large", get(|| async { "x".repeat(1_024 * 1_024) }));
    let router = router.route("/slow", get(|| async { Body::from_stream(parts()) }));
    let router = router.route("/endless", get(|| async { Body::from_stream(stream::repeat(part())) }));
    let router =
        router.route("/quiet", get(|| async { Body::from_stream(stream::iter([part()]).chain(stream::pending())) }));
    let answering = tokio::spawn(async move {
        let (from, far) = (PeerAddress::of([192, 0, 2, 1].into()), StallGuard::new(far, ProgressRule::default()));
        let _ = serve_stream(far, is_http2, (from, Activity::default()), router, &CancellationToken::new()).await;
    });
    (near, answering)
}

fn part() -> Result<Bytes, Infallible> {
    Ok(Bytes::from_static(&[b'x'; 64 * 1_024]))
}

/// Ten parts, one every 30 seconds.
fn parts() -> impl Stream<Item = Result<&'static str, Infallible>> + Send {
    stream::unfold(0, |sent| async move {
        tokio::time::sleep(A_MINUTE / 2).await;
        (sent < 10).then(|| (Ok("part "), sent + 1))
    })
}

async fn read_to_end(stream: &mut DuplexStream) {
    while stream.read(&mut [0; 1_024]).await.is_ok_and(|bytes| bytes > 0) {}
}

#[tokio::test(start_paused = true)]
async fn connection_without_a_complete_request_is_closed() {
    let (after_idle, after_ping) = (A_MINUTE + SHUTDOWN_TIMEOUT, PING_EVERY + HEADERS_TIMEOUT);
    for (is_http2, sent, after) in [
        (false, &b""[..], HEADERS_TIMEOUT),
        (false, b"P", HEADERS_TIMEOUT),
        (true, b"", after_idle),
        (true, b"PRI * HT", after_idle),
        (true, PREFACE, after_ping),
    ] {
        let (mut near, answering) = open(is_http2);
        let began = Instant::now();
        near.write_all(sent).await.unwrap();
        read_to_end(&mut near).await;
        answering.await.unwrap();
        assert_eq!(began.elapsed(), after, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_response_is_sent_completely() {
    let (near, _answering) = open(true);
    let answer = client(near, 64 * 1_024).await.send_request(request("/slow")).await.unwrap();
    let body = axum::body::to_bytes(Body::new(answer.into_body()), 1_024).await.unwrap();
    assert_eq!(body.len(), 50);
}

type Sender = hyper::client::conn::http2::SendRequest<Body>;

/// An HTTP/2 client that reads its connection and grants stream windows of this size.
async fn client(near: DuplexStream, window_bytes: u32) -> Sender {
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(window_bytes);
    let (sender, connection) = http.handshake::<_, Body>(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(path: &str) -> Request<Body> {
    Request::get(format!("https://x{path}")).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn client_that_never_reads_is_disconnected_after_thirty_seconds() {
    for path in ["/large", "/endless"] {
        let (mut near, answering) = open(false);
        let began = Instant::now();
        near.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        timeout(A_MINUTE * 60, answering).await.expect("it is served forever").unwrap();
        assert_eq!(began.elapsed(), STALLED_AFTER, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn http2_client_without_window_is_disconnected_after_thirty_seconds() {
    for (path, window_bytes) in [("/large", 0), ("/large", 64 * 1_024), ("/endless", 1), ("/endless", 64 * 1_024)] {
        let (near, answering) = open(true);
        let began = Instant::now();
        let unread = client(near, window_bytes).await.send_request(request(path)).await.unwrap();
        timeout(A_MINUTE * 60, answering).await.expect("it is served forever").unwrap();
        assert_eq!(began.elapsed(), STALLED_AFTER, "{path}, {window_bytes}");
        drop(unread);
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_response_closes_its_busy_connection_after_five_minutes() {
    let (near, answering) = open(true);
    let began = Instant::now();
    let mut sender = client(near, 64 * 1_024).await;
    let unread = sender.send_request(request("/endless")).await.unwrap();
    while let Ok(answer) = sender.send_request(request("/")).await {
        drop(answer);
        assert!(began.elapsed() < A_MINUTE * 60, "it is served forever");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    answering.await.unwrap();
    let (ended, five_minutes) = (began.elapsed(), crate::progress::LEAST_BYTES_WITHIN);
    assert!(ended >= five_minutes && ended < five_minutes + STALLED_AFTER, "{ended:?}");
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn stream_without_data_stays_open() {
    let (near, answering) = open(true);
    let mut answer = client(near, 64 * 1_024).await.send_request(request("/quiet")).await.unwrap().into_body();
    let mut received = 0;
    while received < 64 * 1_024 {
        received += answer.frame().await.expect("a frame").expect("a frame").into_data().expect("data").len();
    }
    assert!(timeout(A_MINUTE * 60, answer.frame()).await.is_err(), "it was ended");
    let (mut near, answering_in_text) = open(false);
    near.write_all(b"GET /quiet HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(timeout(A_MINUTE * 60, read_to_end(&mut near)).await.is_err(), "it was ended");
    assert!(!answering.is_finished() && !answering_in_text.is_finished());
}

#[tokio::test(start_paused = true)]
async fn large_response_is_complete_and_has_its_length() {
    let (near, _answering) = open(true);
    let answer = client(near, 64 * 1_024).await.send_request(request("/large")).await.unwrap();
    assert_eq!(answer.headers()["content-length"], "1048576");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 1_024 * 1_024);
    let (mut near, _answering) = open(false);
    near.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    near.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("content-length: 1048576"), "{head}");
    assert_eq!(body.len(), 1_024 * 1_024);
}

#[tokio::test(start_paused = true)]
async fn idle_client_is_disconnected_and_waiting_client_is_not() {
    let (near, answering) = open(true);
    let began = Instant::now();
    let mut sender = client(near, 64 * 1_024).await;
    let waited_for = sender.send_request(request("/long")).await.unwrap();
    assert_eq!((waited_for.status().as_u16(), began.elapsed()), (200, A_MINUTE * 10));
    drop(waited_for);
    tokio::time::sleep(A_MINUTE / 2).await;
    assert_eq!(sender.send_request(request("/")).await.unwrap().status().as_u16(), 200);
    answering.await.unwrap();
    let idle = began.elapsed() - A_MINUTE * 10 - A_MINUTE / 2;
    assert!(idle >= A_MINUTE && idle <= A_MINUTE + SHUTDOWN_TIMEOUT, "{idle:?}");
    assert!(sender.send_request(request("/")).await.is_err());
}
