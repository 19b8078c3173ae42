//! Tests what a follower of KubeNodes reads and shows, and how often, whatever an apiserver sends. Time is paused.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod hostile;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use gpuaas_kube::{ByteStream, Cluster, EVENT_BYTES_MAX, Endpoint, KubeError, Kubeconfig, NodeFollower};
use hostile::{Hostile, Reply};
use tokio::{runtime::Handle, time::Instant};

const ONE_NODE: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"gpu-1"},
    "status":{"conditions":[{"type":"Ready","status":"True"}]}}]}"#;
const READY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
/// Number of the requests that a test counts.
type Count = Arc<AtomicUsize>;

/// A cluster whose apiserver answers by `script`.
fn cluster(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Cluster {
    let hostile = Hostile::new(Handle::current(), script);
    let kubeconfig = Kubeconfig::parse(hostile.kubeconfig.as_bytes()).unwrap();
    let endpoint = Endpoint { host: hostile::ADDRESS.to_owned(), port: 6443 };
    let connector = move || {
        let hostile = hostile.clone();
        async move { Ok(Box::new(hostile.open()) as Box<dyn ByteStream>) }.boxed()
    };
    Cluster::new(&kubeconfig, endpoint, Arc::new(connector)).unwrap()
}

/// A follower that keeps name and readiness, of a ready cluster that answers lists and watches by `script`.
fn follower(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> NodeFollower<(String, bool)> {
    let cluster = cluster(move |line| match line {
        line if line.contains("/readyz") => Reply::bytes(READY),
        line => script(line),
    });
    NodeFollower::new(cluster, |node| (node.name, node.ready))
}

/// A cluster with one KubeNode whose watches `watch` answers; counts its lists.
fn watched(watch: impl Fn() -> Reply + Send + Sync + 'static) -> (NodeFollower<(String, bool)>, Count) {
    let lists = Count::default();
    let counted = lists.clone();
    let script = move |line: &str| {
        if line.contains("watch=") {
            return watch();
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::json("200 OK", ONE_NODE)
    };
    (follower(script), lists)
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// An event with the name and readiness of a KubeNode.
fn event(kind: &str, name: &str, ready: bool) -> Vec<u8> {
    let status = if ready { "True" } else { "False" };
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","resourceVersion":"2"}},"status":{{"conditions":[{{"type":"Ready","status":"{status}"}}]}}}}"#
    );
    chunk(&format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

/// A watch that sends these chunks and then nothing.
fn stream(chunks: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Reply {
    Reply::pieces(chunks).with_head(STREAM)
}

/// Polls the follower for a time; returns how often it showed something and how often it failed.
async fn shown_within<T: Clone + PartialEq>(follower: &mut NodeFollower<T>, time: Duration) -> (usize, usize) {
    let (over, mut shown, mut failed) = (Instant::now() + time, 0, 0);
    while let Ok(seen) = tokio::time::timeout_at(over, follower.next()).await {
        match seen {
            Ok(_) => shown += 1,
            Err(_) => failed += 1,
        }
    }
    (shown, failed)
}

#[tokio::test(start_paused = true)]
async fn changes_are_shown_together_and_heartbeats_not_at_all() {
    let (mut follower, _) = watched(|| {
        let same = (0..50).map(|_| event("MODIFIED", "gpu-1", true));
        let changes =
            [event("MODIFIED", "gpu-1", false), event("ADDED", "gpu-2", true), event("DELETED", "gpu-3", true)];
        stream(same.chain(changes))
    });
    assert_eq!(follower.next().await.unwrap(), [("gpu-1".to_owned(), true)]);
    let began = Instant::now();
    let seen = follower.next().await.unwrap();
    assert_eq!(seen, [("gpu-1".to_owned(), false), ("gpu-2".to_owned(), true)]);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn thousand_changes_a_second_are_shown_at_most_twice_a_second() {
    let (mut follower, _) = watched(|| {
        let flips = (0..).map(|number| event("MODIFIED", "gpu-1", number % 2 == 0));
        stream(flips).every(Duration::from_millis(1))
    });
    let (shown, failed) = shown_within(&mut follower, Duration::from_secs(10)).await;
    assert!((5..=21).contains(&shown) && failed == 0, "{shown} shown, {failed} failed");
}

#[tokio::test(start_paused = true)]
async fn watches_beyond_their_limits_are_replaced_by_few_lists() {
    let huge = || Reply::chunks("{\"type\":\"", "A", "\n", 2 * EVENT_BYTES_MAX);
    let endless = || Reply::chunks("\n", "{\"type\":\"MODIFIED\",\"object\":{}}\n", "\n", 64 * 1_024 * 1_024);
    let gone =
        || stream(std::iter::once(chunk("{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n")));
    for (what, watch) in
        [("an event", huge as fn() -> Reply), ("a watch", endless as fn() -> Reply), ("410", gone as fn() -> Reply)]
    {
        let (mut follower, lists) = watched(watch);
        let (_, failed) = shown_within(&mut follower, Duration::from_secs(60)).await;
        let lists = lists.load(Ordering::SeqCst);
        assert!((5..=7).contains(&lists) && failed == 0, "{what}: {lists} lists, {failed} failures");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_watch_breaks_and_a_version_that_is_too_old_leads_to_a_list_at_once() {
    let (lists, watches) = (Count::default(), Count::default());
    let counted = lists.clone();
    let mut follower = follower(move |line| {
        if !line.contains("watch=") {
            counted.fetch_add(1, Ordering::SeqCst);
            return Reply::json("200 OK", ONE_NODE);
        }
        match watches.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::bytes(STREAM),
            _ => Reply::json("410 Gone", r#"{"kind":"Status","message":"too old resource version"}"#),
        }
    });
    follower.next().await.unwrap();
    let began = Instant::now();
    let silent = follower.next().await.unwrap_err();
    assert!(silent.is_transport(), "{silent}");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!(lists.load(Ordering::SeqCst), 1);
    let began = Instant::now();
    follower.next().await.unwrap();
    assert_eq!(lists.load(Ordering::SeqCst), 2);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn cluster_with_too_many_nodes_is_a_failure_and_not_remembered() {
    let mut follower =
        follower(|_| Reply::json("200 OK", r#"{"metadata":{"continue":"more"},"items":[{},{},{},{},{}]}"#));
    let error = follower.next().await.unwrap_err();
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("more than 255 KubeNodes")), "{error}");
    let (mut many, _) = watched(|| stream((0..).map(|number| event("ADDED", &format!("n{number}"), true))));
    many.next().await.unwrap();
    let error = loop {
        match many.next().await {
            Ok(seen) => assert!(seen.len() <= 255, "{}", seen.len()),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("more than 255 KubeNodes")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn apiserver_that_is_not_ready_is_asked_ever_more_rarely_and_its_return_is_shown() {
    let fails = Arc::new(AtomicBool::new(true));
    let switch = fails.clone();
    let cluster = cluster(move |line| match line {
        line if line.contains("/readyz") && switch.load(Ordering::SeqCst) => {
            let body = "[+]ping ok\n[-]etcd failed: reason withheld\n";
            Reply::bytes(format!("HTTP/1.1 500 X\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
        }
        line if line.contains("/readyz") => Reply::bytes(READY),
        line if line.contains("watch=") => Reply::bytes(STREAM),
        _ => Reply::json("200 OK", ONE_NODE),
    });
    let mut follower = NodeFollower::new(cluster, |node| node.name);
    let error = follower.next().await.unwrap_err();
    assert!(error.to_string().contains("1 checks of /readyz fail, among them etcd"), "{error}");
    let (shown, failed) = shown_within(&mut follower, Duration::from_secs(120)).await;
    assert!(shown == 0 && (12..=17).contains(&failed), "{shown} shown, {failed} failed");
    fails.store(false, Ordering::SeqCst);
    let began = Instant::now();
    assert_eq!(follower.next().await.unwrap(), ["gpu-1"]);
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
}
