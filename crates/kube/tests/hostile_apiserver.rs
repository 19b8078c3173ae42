//! Tests the limits for the size and duration of a hostile apiserver's answers, with paused time.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod hostile;

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt as _;
use gpuaas_kube::{
    AccessRole, AccessTerms, Admission, ByteStream, CallKind, Cluster, EVENT_BYTES_MAX, Endpoint, KubeError,
    Kubeconfig, NODES_BYTES_MAX, Permit, REQUEST_TIMEOUT,
};
use hostile::{Hostile, Reply};
use tokio::{runtime::Handle, time::Instant};

const A_SECOND: Duration = Duration::from_secs(1);

fn endpoint() -> Endpoint {
    Endpoint { host: hostile::ADDRESS.to_owned(), port: 6443 }
}

fn connector(hostile: &Arc<Hostile>) -> Arc<dyn gpuaas_kube::Connector> {
    let hostile = hostile.clone();
    Arc::new(move || {
        let hostile = hostile.clone();
        async move { Ok(Box::new(hostile.open()) as Box<dyn ByteStream>) }.boxed()
    })
}

fn cluster(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (Cluster, Arc<Hostile>) {
    let hostile = Hostile::new(Handle::current(), script);
    let kubeconfig = Kubeconfig::parse(hostile.kubeconfig.as_bytes()).unwrap();
    (Cluster::new(&kubeconfig, endpoint(), connector(&hostile)).unwrap(), hostile)
}

fn terms() -> AccessTerms {
    AccessTerms {
        name: "access-1".into(),
        role: AccessRole::ClusterAdmin,
        kind: "direct".into(),
        requested_by: "ann".into(),
        seconds: 600,
        context: "prod".into(),
    }
}

async fn refused(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> KubeError {
    cluster(script).0.kube_nodes().await.unwrap_err()
}

/// Sends one byte per second of `text`, and then endless blanks.
fn drip(text: &'static str) -> Reply {
    Reply::pieces(text.bytes().chain(std::iter::repeat(b' ')).map(|byte| vec![byte])).every(A_SECOND)
}

#[tokio::test(start_paused = true)]
async fn request_ends_within_its_timeout() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let often = |text: &'static str| Reply::pieces(std::iter::repeat(text)).every(A_SECOND);
    for (what, reply) in [
        ("nothing", (|_| Reply::bytes("")) as fn(&str) -> Reply),
        ("a head, byte by byte", |_| drip("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n")),
        ("a body, byte by byte", |_| drip("").with_head("HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")),
    ] {
        stalls(what, reply).await;
    }
    stalls("chunks, byte by byte", move |_| often("1\r\n \r\n").with_head(chunked)).await;
    stalls("100 Continue without end", move |_| often("HTTP/1.1 100 Continue\r\n\r\n")).await;
    stalls("another header every second", move |_| often("x: y\r\n").with_head("HTTP/1.1 200 OK\r\n")).await;
}

async fn stalls(what: &str, script: impl Fn(&str) -> Reply + Send + Sync + 'static) {
    let began = Instant::now();
    let ended = tokio::time::timeout(10 * REQUEST_TIMEOUT, refused(script)).await;
    let error = ended.unwrap_or_else(|_| panic!("{what}: the request does not end"));
    assert!(matches!(error, KubeError::TimedOut { .. }), "{what}: {error}");
    assert_eq!(began.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn response_is_refused_as_soon_as_it_is_too_long() {
    let named = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", NODES_BYTES_MAX + 1);
    let began = Instant::now();
    // The body never comes: the declared length is enough.
    let error = refused(move |_| Reply::bytes(named.clone())).await;
    assert!(matches!(&error, KubeError::TooLong { bytes_max: NODES_BYTES_MAX }), "{error}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let error = refused(|_| Reply::chunks("{\"items\":[", " ", "]}", 64 * NODES_BYTES_MAX)).await;
    assert!(matches!(&error, KubeError::TooLong { bytes_max: NODES_BYTES_MAX }), "{error}");
    // Chunks of one byte each: less data than the longest answer, but far more bytes on the wire.
    let chunks = |_: &str| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
        Reply::pieces(std::iter::once(head).chain(std::iter::repeat_n("1\r\n \r\n".repeat(1_000), 200)))
    };
    let error = refused(chunks).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("exceeds its byte limit")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn heads_are_bounded_in_length_number_and_repetition() {
    let long = |_: &str| Reply::bytes(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(20_000)));
    let many = |_: &str| Reply::bytes(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(65)));
    for error in [refused(long).await, refused(many).await] {
        assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("headers")), "{error}");
    }
    let continued = |_: &str| Reply::pieces(std::iter::repeat("HTTP/1.1 100 Continue\r\n\r\n".repeat(600)));
    let error = refused(continued).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("exceeds its byte limit")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn compressed_response_is_refused() {
    let gzip = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\n\x1f\u{b}bomb";
    let error = refused(move |_| Reply::bytes(gzip)).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("compressed")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn endless_list_is_refused_at_its_limit() {
    let page = r#"{"metadata":{"continue":"more"},"items":[{},{},{},{},{}]}"#;
    let (cluster, hostile) = cluster(move |_| Reply::json("200 OK", page));
    let error = cluster.kube_nodes().await.unwrap_err();
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("more than 255 KubeNodes")), "{error}");
    assert_eq!(hostile.opened.load(Ordering::SeqCst), 1, "all pages over one connection");
    let more = r#"{"items":[{},{},{},{},{},{}]}"#;
    let error = refused(move |_| Reply::json("200 OK", more)).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("more than 5 entries")), "{error}");
}

/// A cluster without KubeNodes that answers a watch with `watch`.
fn watched(watch: fn() -> Reply) -> Cluster {
    let script = move |line: &str| match line {
        line if line.contains("watch=") => watch(),
        _ => Reply::json("200 OK", r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#),
    };
    cluster(script).0
}

#[tokio::test(start_paused = true)]
async fn watch_is_bounded_per_event_and_in_total() {
    let wait = async |cluster: Cluster| {
        cluster.await_kube_node_ready("gpu-1", None, Duration::from_secs(600), &|_| {}).await.unwrap_err()
    };
    let event = || Reply::chunks("{\"type\":\"", "A", "\n", 2 * EVENT_BYTES_MAX);
    let error = wait(watched(event)).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("an event is longer")), "{error}");
    let endless = || Reply::chunks("\n", "{\"type\":\"DELETED\",\"object\":{}}\n", "\n", 64 * 1_024 * 1_024);
    let error = wait(watched(endless)).await;
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("exceeds its byte limit")), "{error}");
    let strange = || Reply::chunks("{\"type\":\"SURPRISE\",\"object\":{}}", "\n", "\n", 64);
    assert!(matches!(wait(watched(strange)).await, KubeError::Unreadable(_)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_until_the_wait_is_over() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let hostile = Hostile::new(Handle::current(), move |line| match line {
        line if line.contains("watch=") => Reply::bytes(head),
        _ => Reply::json("200 OK", r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#),
    });
    let kubeconfig = Kubeconfig::parse(hostile.kubeconfig.as_bytes()).unwrap();
    let cluster = Cluster::new(&kubeconfig, endpoint(), connector(&hostile)).unwrap();
    let timeout = Duration::from_secs(120);
    let error = cluster.await_kube_node_ready("gpu-1", None, timeout, &|_| {}).await.unwrap_err();
    assert!(matches!(error, KubeError::NotReady { .. }), "{error}");
    let opened = hostile.opened.load(Ordering::SeqCst);
    assert!((4..=8).contains(&opened), "{opened}");
}

#[tokio::test(start_paused = true)]
async fn unexpected_status_is_an_error() {
    for status in ["101 Switching Protocols", "204 No Content", "302 Found", "418 I'm a teapot", "999 What"] {
        let head =
            format!("HTTP/1.1 {status}\r\nlocation: https://elsewhere\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
        let (cluster, _) = cluster(move |_| Reply::bytes(head.clone()));
        assert!(cluster.grant_access(&terms()).await.is_err(), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn message_of_the_apiserver_is_kept_and_truncated() {
    let body = format!(r#"{{"kind":"Status","message":"no room\n{}"}}"#, "x".repeat(10_000));
    let error = refused(move |_| Reply::json("507 Insufficient Storage", &body)).await;
    let text = error.to_string();
    assert!(matches!(error, KubeError::Answered { status: 507, .. }), "{text}");
    assert!(text.contains("no room x") && text.len() < 600, "{text}");
}

/// Records the admitted calls, and refuses all after the second.
#[derive(Default)]
struct AdmitTwo(Arc<Mutex<Vec<CallKind>>>);

impl Admission for AdmitTwo {
    fn admit(&self, kind: CallKind) -> futures::future::BoxFuture<'static, Result<Permit, KubeError>> {
        let admitted = self.0.clone();
        async move {
            let mut admitted = admitted.lock().unwrap();
            admitted.push(kind);
            match admitted.len() {
                1 | 2 => Ok(Box::new(()) as Permit),
                _ => Err(KubeError::Busy { seconds: 5 }),
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn request_without_admission_is_not_sent() {
    let hostile = Hostile::new(Handle::current(), |_| Reply::json("200 OK", "{}"));
    let kubeconfig = Kubeconfig::parse(hostile.kubeconfig.as_bytes()).unwrap();
    let admission = AdmitTwo::default();
    let admitted = admission.0.clone();
    let cluster = Cluster::with_admission(&kubeconfig, endpoint(), connector(&hostile), Arc::new(admission)).unwrap();
    let error = cluster.grant_access(&terms()).await.unwrap_err();
    assert!(matches!(error, KubeError::Busy { seconds: 5 }), "{error}");
    assert_eq!(hostile.requests.load(Ordering::SeqCst), 2);
    let other = cluster.with_credentials(&kubeconfig).unwrap();
    assert!(matches!(other.whoami().await, Err(KubeError::Busy { .. })), "other credentials count too");
    assert_eq!(admitted.lock().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_and_a_used_one_is_reused() {
    let (cluster, hostile) = cluster(|_| Reply::json("200 OK", r#"{"gitVersion":"v1"}"#));
    let opened = || hostile.opened.load(Ordering::SeqCst);
    for _ in 0..3 {
        cluster.version().await.unwrap();
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    assert_eq!(opened(), 1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    cluster.version().await.unwrap();
    assert_eq!(opened(), 2);
}
