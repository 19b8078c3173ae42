//! Tests drains and deletions against an apiserver that answers anything, with paused time.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod hostile;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use gpuaas_kube::{ByteStream, Cluster, DrainBlock, DrainOptions, Drained, Endpoint, Hold, KubeError, Kubeconfig};
use hostile::{Hostile, Reply};
use serde_json::{Value, json};
use tokio::runtime::Handle;

const CAREFUL: DrainOptions = DrainOptions { force: false, delete_empty_dir_data: false };
const MINUTE: Duration = Duration::from_secs(60);
const WATCH_HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const ACCEPTED: &str = r#"{"kind":"Status","status":"Success"}"#;

/// The kinds of request of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Node,
    Pods,
    PodsWatch,
    Pod,
    Eviction,
    DaemonSet,
    Budget,
    Budgets,
    Other,
}

fn asked(line: &str) -> Asked {
    match line {
        _ if line.starts_with("GET /api/v1/nodes/") => Asked::Node,
        _ if line.starts_with("GET /api/v1/pods?") && line.contains("watch=true") => Asked::PodsWatch,
        _ if line.starts_with("GET /api/v1/pods?") => Asked::Pods,
        _ if line.starts_with("GET /api/v1/namespaces/") => Asked::Pod,
        _ if line.starts_with("POST /api/v1/namespaces/") && line.ends_with("/eviction") => Asked::Eviction,
        _ if line.contains("/daemonsets/") => Asked::DaemonSet,
        _ if line.contains("/poddisruptionbudgets/") => Asked::Budget,
        _ if line.contains("/poddisruptionbudgets?") => Asked::Budgets,
        _ => Asked::Other,
    }
}

fn node(ready: &str) -> Reply {
    let condition = json!({
        "type": "Ready", "status": ready, "message": "as it is", "lastTransitionTime": "2026-07-01T09:00:00Z",
    });
    ok(&json!({
        "metadata": {"name": "gpu-2"}, "spec": {"unschedulable": true}, "status": {"conditions": [condition]},
    }))
}

fn ok(body: &Value) -> Reply {
    Reply::json("200 OK", &body.to_string())
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "web", "name": name, "uid": format!("uid-{name}"),
            "ownerReferences": [{"kind": "ReplicaSet", "name": "api", "controller": true}],
        },
        "status": {"phase": "Running"},
    })
}

fn list(items: &[Value]) -> Reply {
    ok(&json!({"metadata": {"resourceVersion": "7"}, "items": items}))
}

/// A watch without any event.
fn silence() -> Reply {
    Reply::bytes(WATCH_HEAD)
}

/// An answer to an eviction that a budget forbids.
fn held(cause: &str) -> Reply {
    let causes = [json!({"reason": "DisruptionBudget", "message": cause})];
    let body = json!({"status": "Failure", "message": "no", "code": 429, "details": {"causes": causes}});
    Reply::json("429 Too Many Requests", &body.to_string())
}

/// A cluster with a ready KubeNode, silent watches, and accepted evictions, unless `script` answers otherwise.
struct Site {
    cluster: Cluster,
    hostile: Arc<Hostile>,
    asked: Arc<Mutex<Vec<Asked>>>,
    progress: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new(script: impl Fn(Asked, &str) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let requests = log.clone();
        let hostile = Hostile::new(Handle::current(), move |line| {
            let kind = asked(line);
            requests.lock().unwrap().push(kind);
            script(kind, line).unwrap_or_else(|| match kind {
                Asked::Node => node("True"),
                Asked::Pods => list(&[pod("api-1")]),
                Asked::PodsWatch => silence(),
                Asked::Eviction => Reply::json("201 Created", ACCEPTED),
                Asked::Pod | Asked::DaemonSet | Asked::Budget | Asked::Budgets | Asked::Other => {
                    Reply::json("404 Not Found", r#"{"message":"no such object"}"#)
                }
            })
        });
        let kubeconfig = Kubeconfig::parse(hostile.kubeconfig.as_bytes()).unwrap();
        let server = hostile.clone();
        let connector = move || {
            let server = server.clone();
            async move { Ok(Box::new(server.open()) as Box<dyn ByteStream>) }.boxed()
        };
        let endpoint = Endpoint { host: hostile::ADDRESS.to_owned(), port: 6443 };
        let cluster = Cluster::new(&kubeconfig, endpoint, Arc::new(connector)).unwrap();
        Self { cluster, hostile, asked: log, progress: Arc::default() }
    }

    async fn drain(&self, timeout: Duration) -> Result<Drained, KubeError> {
        let progress = self.progress.clone();
        let sink = move |text| progress.lock().unwrap().push(text);
        let cluster = self.cluster.clone();
        // On another task, as the engine runs it.
        tokio::spawn(async move { cluster.drain("gpu-2", CAREFUL, timeout, &sink).await }).await.unwrap()
    }

    async fn blocked(&self, timeout: Duration) -> DrainBlock {
        match self.drain(timeout).await.unwrap_err() {
            KubeError::DrainBlocked(block) => *block,
            other => panic!("{other}"),
        }
    }

    fn count(&self, kind: Asked) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == kind).count()
    }

    fn reported(&self, part: &str) -> bool {
        self.progress.lock().unwrap().iter().any(|text| text.contains(part))
    }
}

#[tokio::test(start_paused = true)]
async fn endless_pages_end_at_the_limit_with_pods_and_without() {
    for items in [json!([]), json!([pod("api-1")])] {
        let page = json!({"metadata": {"continue": "more"}, "items": items}).to_string();
        let site = Site::new(move |kind, _| (kind == Asked::Pods).then(|| Reply::json("200 OK", &page)));
        let error = site.drain(MINUTE).await.unwrap_err();
        assert!(matches!(&error, KubeError::Unreadable(why) if why.contains("more than 2000 pods")), "{error}");
        assert!(site.count(Asked::Pods) <= 2_001);
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_large_pods_is_requested_again_with_fewer_and_a_huge_pod_ends_the_drain() {
    let huge = || Reply::chunks(r#"{"items":[{"metadata":{"name":""#, "aaaaaaaaaaaaaaaa", r#""}}]}"#, 1_024 * 1_024);
    let site = Site::new(move |kind, line| {
        (kind == Asked::Pods).then(|| if line.contains("limit=5&") { list(&[]) } else { huge() })
    });
    assert_eq!(site.drain(MINUTE).await.unwrap().evicted, 0);
    assert_eq!(site.count(Asked::Pods), 3, "20, 10, 5");
    let site = Site::new(move |kind, _| (kind == Asked::Pods).then(huge));
    assert!(matches!(site.drain(MINUTE).await, Err(KubeError::TooLong { .. })));
    assert_eq!(site.count(Asked::Pods), 5, "20, 10, 5, 2, 1");
}

#[tokio::test(start_paused = true)]
async fn pods_that_need_a_flag_are_all_named_and_none_is_evicted() {
    let mut bare = pod("bare");
    bare["metadata"]["ownerReferences"] = json!([]);
    let mut cached = pod("cached");
    cached["spec"] = json!({"volumes": [{"emptyDir": {}}]});
    let mut orphan = pod("orphan");
    orphan["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    let pods = [bare, cached, orphan, pod("api-1")];
    let site = Site::new(move |kind, _| (kind == Asked::Pods).then(|| list(&pods)));
    let error = site.drain(MINUTE).await.unwrap_err();
    let KubeError::DrainRefused(refusal) = &error else { panic!("{error}") };
    let names = |few: &gpuaas_kube::Few<gpuaas_kube::ObjectName>| few.to_string();
    assert_eq!(names(&refusal.unreplaced), "web/bare, web/orphan");
    assert_eq!(names(&refusal.with_empty_dir), "web/cached");
    assert_eq!(site.count(Asked::Eviction), 0);
}

#[tokio::test(start_paused = true)]
async fn budget_that_yields_is_named_until_then() {
    let evictions = Arc::new(AtomicUsize::new(0));
    let so_far = evictions.clone();
    let site = Site::new(move |kind, _| match kind {
        Asked::Eviction if evictions.fetch_add(1, Ordering::SeqCst) < 3 => {
            Some(held("The disruption budget api needs 2 healthy pods and has 2 currently"))
        }
        Asked::Budget => Some(ok(&json!({
            "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2},
        }))),
        Asked::Pods if evictions.load(Ordering::SeqCst) > 3 => Some(list(&[])),
        // The watch begins after 5 s and ends after 10 s; the next list has no pods.
        Asked::PodsWatch => {
            Some(Reply::pieces(std::iter::once("0\r\n\r\n")).every(Duration::from_secs(5)).with_head(WATCH_HEAD))
        }
        _ => None,
    });
    let drained = site.drain(10 * MINUTE).await;
    assert_eq!(so_far.load(Ordering::SeqCst), 4, "{drained:?}");
    assert_eq!(drained.unwrap().evicted, 1);
    let text = "1 of 1 pods left; web/api-1 is held by budget web/api (allows 0 disruptions: 2 healthy, 2 needed)";
    assert!(site.reported(text), "{:?}", site.progress.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn budget_that_never_yields_is_named_at_the_deadline() {
    let site = Site::new(|kind, _| match kind {
        Asked::Pods => Some(list(&(0..7).map(|n| pod(&format!("api-{n}"))).collect::<Vec<_>>())),
        Asked::Eviction => Some(held("The disruption budget api is still being processed by the server.")),
        _ => None,
    });
    let block = site.blocked(MINUTE).await;
    assert_eq!((block.seconds, block.remains.left, block.remains.held.count()), (60, 7, 7));
    let text = block.to_string();
    assert!(text.contains("web/api-4 is held by budget web/api and 2 more") && !text.contains("api-5"), "{text}");
    // A minute has thirty rounds of seven evictions, and one budget is read in each round.
    assert!((150..=240).contains(&site.count(Asked::Eviction)), "{}", site.count(Asked::Eviction));
    assert!(site.count(Asked::Budget) <= 35, "{}", site.count(Asked::Budget));
    assert!(site.progress.lock().unwrap().len() <= 30, "{:?}", site.progress.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn several_budgets_are_named_and_those_with_control_characters_are_left_out() {
    let several = r#"{"status":"Failure","code":500,"message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}"#;
    let budget = |name: &str, app: &str| json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}}});
    let budgets = [budget("a", "api"), budget("b", "api"), budget("c\u{1b}[31m", "api"), budget("d", "db")];
    let site = Site::new(move |kind, _| match kind {
        Asked::Eviction => Some(Reply::json("201 Created", several)),
        Asked::Pod => Some(ok(&json!({"metadata": {"labels": {"app": "api"}}}))),
        Asked::Budgets => Some(ok(&json!({"items": budgets}))),
        _ => None,
    });
    let block = site.blocked(MINUTE).await;
    let Hold::Budgets(names) = &block.remains.held.named[0].by else { panic!("{block}") };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["web/a", "web/b"]);

    let site = Site::new(|kind, _| match kind {
        Asked::Eviction => Some(held("The disruption budget \u{1b}[31mx\ny needs")),
        Asked::Budgets => Some(Reply::json("403 Forbidden", r#"{"message":"no\u001b[31m"}"#)),
        _ => None,
    });
    let text = site.blocked(MINUTE).await.to_string();
    assert!(text.contains("is held by a budget that could not be read"), "{text}");
    let all = site.progress.lock().unwrap().join("");
    assert!(!all.chars().chain(text.chars()).any(char::is_control), "{all} {text}");
}

#[tokio::test(start_paused = true)]
async fn flow_control_without_end_is_no_budget_and_slows_the_drain() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy";
    let site = Site::new(move |kind, _| match kind {
        Asked::Pods => Some(list(&(0..100).map(|n| pod(&format!("api-{n}"))).collect::<Vec<_>>()[..20])),
        Asked::Eviction => Some(Reply::bytes(busy)),
        _ => None,
    });
    let block = site.blocked(2 * MINUTE).await;
    assert!(block.remains.held.is_empty(), "{block}");
    assert!(block.to_string().contains("the next eviction waits: the apiserver has too many requests"), "{block}");
    // Twenty evictions every seven seconds.
    assert!(site.count(Asked::Eviction) <= 20 * 19, "{}", site.count(Asked::Eviction));
}

#[tokio::test(start_paused = true)]
async fn evicted_pod_that_never_ends_is_named_with_the_state_of_its_node() {
    let site = Site::new(|kind, _| match kind {
        Asked::Node => Some(node("Unknown")),
        Asked::Pods => {
            let mut ending = pod("api-1");
            ending["metadata"]["deletionTimestamp"] = "2026-07-01T10:00:00Z".into();
            Some(list(&[ending]))
        }
        _ => None,
    });
    let block = site.blocked(2 * MINUTE).await;
    assert_eq!(block.remains.ending.count(), 1);
    let text = block.to_string();
    assert!(text.contains("web/api-1 (grace period until 2026-07-01T10:00:00Z)"), "{text}");
    assert!(text.contains("KubeNode gpu-2 is not ready since 2026-07-01T09:00:00Z"), "{text}");
    assert_eq!(site.count(Asked::Eviction), 0, "it ends already");
    // A silent watch is given up after 35 s.
    assert!((3..=6).contains(&site.count(Asked::PodsWatch)), "{}", site.count(Asked::PodsWatch));
}

#[tokio::test(start_paused = true)]
async fn watch_that_floods_lies_or_ends_at_once_is_replaced_by_lists_at_a_low_rate() {
    type Watch = fn() -> Reply;
    let watches: [(&str, Watch); 4] = [
        ("tiny events", || Reply::chunks("\n", "{\"type\":\"DELETED\",\"object\":{}}\n", "\n", 64 * 1_024 * 1_024)),
        ("a huge event", || Reply::chunks("{\"type\":\"", "A", "\n", 1_024 * 1_024)),
        ("garbage", || Reply::chunks("{\"type\":\"SURPRISE\",\"object\":{}}", "\n", "\n", 64)),
        ("an early end", || Reply::json("200 OK", "")),
    ];
    for (what, watch) in watches {
        let site = Site::new(move |kind, _| (kind == Asked::PodsWatch).then(watch));
        let block = site.blocked(MINUTE / 2).await;
        assert_eq!(block.remains.left, 1, "{what}");
        assert!((4..=8).contains(&site.count(Asked::Pods)), "{what}: {} lists", site.count(Asked::Pods));
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_contradicts_the_evictions_does_not_spin() {
    let site = Site::new(|kind, _| match kind {
        Asked::Eviction => Some(Reply::json("404 Not Found", "{}")),
        _ => None,
    });
    let block = site.drain(MINUTE).await.unwrap_err();
    assert!(matches!(block, KubeError::DrainBlocked(_)), "{block}");
    // At most four a second.
    assert!(site.count(Asked::Pods) <= 245, "{}", site.count(Asked::Pods));
}

#[tokio::test(start_paused = true)]
async fn apiserver_that_breaks_is_waited_for_and_named_if_it_stays_away() {
    let site = Site::new(|kind, _| match kind {
        Asked::Pods => Some(Reply::json("503 Service Unavailable", r#"{"message":"etcd is frozen"}"#)),
        _ => None,
    });
    let error = site.drain(MINUTE).await.unwrap_err();
    assert!(matches!(&error, KubeError::NotReady { last, .. } if last.contains("etcd is frozen")), "{error}");
    for (status, fatal) in [("401 Unauthorized", "rejected the credentials"), ("403 Forbidden", "denied")] {
        let site = Site::new(move |kind, _| (kind == Asked::Pods).then(|| Reply::json(status, r#"{"message":"x"}"#)));
        let error = site.drain(MINUTE).await.unwrap_err();
        assert!(error.to_string().contains(fatal), "{error}");
        assert_eq!(site.count(Asked::Pods), 1, "{status}: at once");
    }
    let site = Site::new(|kind, _| (kind == Asked::Node).then(|| Reply::json("404 Not Found", "{}")));
    assert!(matches!(site.drain(MINUTE).await, Err(KubeError::NoKubeNode(name)) if name == "gpu-2"));
}

#[tokio::test(start_paused = true)]
async fn dropped_drain_sends_nothing_more() {
    let site = Site::new(|kind, _| match kind {
        Asked::Eviction => Some(held("The disruption budget api needs 2 healthy pods and has 2 currently")),
        _ => None,
    });
    let sink = |_: String| {};
    let drain = site.cluster.drain("gpu-2", CAREFUL, 10 * MINUTE, &sink);
    assert!(tokio::time::timeout(MINUTE, drain).await.is_err());
    let sent = site.hostile.requests.load(Ordering::SeqCst);
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(site.hostile.requests.load(Ordering::SeqCst), sent);
}

#[tokio::test(start_paused = true)]
async fn kube_node_with_finalizers_is_waited_for_and_its_finalizer_named() {
    let held = r#"{"metadata":{"resourceVersion":"7","deletionTimestamp":"2026-07-01T10:00:00Z","finalizers":["example.com/volumes\u001b"]}}"#;
    let script = move |watch: fn() -> Reply| {
        Site::new(move |kind, line| match kind {
            Asked::Other if line.starts_with("DELETE ") => Some(Reply::json("200 OK", held)),
            Asked::Other if line.contains("watch=true") => Some(watch()),
            Asked::Node => Some(Reply::json("200 OK", held)),
            _ => None,
        })
    };
    let site = script(silence);
    let error = site.cluster.delete_kube_node("gpu-2", None, MINUTE, &|_| {}).await.unwrap_err();
    assert!(error.to_string().contains("KubeNode gpu-2 is held by finalizer example.com/volumes "), "{error}");
    let site = script(|| Reply::chunks("\n", "\n", "{\"type\":\"DELETED\",\"object\":{}}\n", 64));
    assert!(site.cluster.delete_kube_node("gpu-2", None, MINUTE, &|_| {}).await.unwrap());
    let site = Site::new(|_, _| None);
    assert!(!site.cluster.delete_kube_node("gpu-2", None, MINUTE, &|_| {}).await.unwrap());
}
