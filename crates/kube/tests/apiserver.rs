//! Tests every call of this crate with a genuine apiserver.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod genuine;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use genuine::{Authority, RealApiserver};
use gpuaas_kube::{AccessRole, AccessTerms, Cluster, KubeError, Kubeconfig, Readiness};
use http::Method;

/// The apiserver starts in 3 to 9 s on two idle cores; tests run in parallel.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Media type with which Kubernetes changes a part of an object.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The reports of a wait, and a notification for each.
#[derive(Clone, Default)]
struct ProgressLog {
    texts: Arc<Mutex<Vec<String>>>,
    changed: Arc<tokio::sync::Notify>,
}

impl ProgressLog {
    fn sink(&self) -> impl Fn(String) + Send + Sync + use<> {
        let log = self.clone();
        move |text| {
            log.texts.lock().unwrap().push(text);
            log.changed.notify_one();
        }
    }

    fn has(&self, part: &str) -> bool {
        self.texts.lock().unwrap().iter().any(|text| text.contains(part))
    }

    async fn until(&self, part: &str) {
        let seen = async {
            while !self.has(part) {
                self.changed.notified().await;
            }
        };
        let texts = self.texts.clone();
        tokio::time::timeout(WAIT_MAX, seen)
            .await
            .unwrap_or_else(|_| panic!("no {part:?} in {:?}", texts.lock().unwrap()));
    }
}

fn quiet(_: String) {}

async fn ready(genuine: &RealApiserver) -> Cluster {
    let cluster = genuine.cluster();
    cluster.await_ready(WAIT_MAX, &quiet).await.unwrap();
    cluster
}

async fn add_node(cluster: &Cluster, name: &str) {
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    cluster.request(Method::POST, "/api/v1/nodes", Some(("application/json", node))).await.unwrap();
}

async fn report(cluster: &Cluster, name: &str, status: &str, message: &str) {
    let ready = serde_json::json!({"type": "Ready", "status": status, "reason": "Test", "message": message});
    let patch = serde_json::json!({"status": {
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "127.9.9.9"}],
    }});
    let path = format!("/api/v1/nodes/{name}/status");
    cluster.request(Method::PATCH, &path, Some((MERGE_PATCH, patch))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn await_ready_waits_and_reports_failing_checks() {
    let mut genuine = RealApiserver::prepare().await;
    let cluster = genuine.cluster();
    assert!(matches!(cluster.readyz().await, Err(KubeError::Refused)));
    let refused = cluster.await_ready(Duration::from_millis(600), &quiet).await;
    assert!(matches!(refused, Err(KubeError::Refused)), "{refused:?}");

    // Without etcd the apiserver's port stays closed or its checks fail.
    let log = ProgressLog::default();
    let sink = log.sink();
    genuine.start_apiserver();
    let waiting = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.await_ready(WAIT_MAX, &sink).await })
    };
    log.until("waiting for the apiserver: ").await;
    genuine.start_etcd();
    let took = waiting.await.unwrap().unwrap();
    println!("ready after {took:?}; reported {:?}", log.texts.lock().unwrap());
    assert!(log.has("refuses connections"));
    assert_eq!(cluster.readyz().await.unwrap(), Readiness::Ready);
    assert_eq!(cluster.version().await.unwrap().git_version, "v1.36.3+rke2r1");
    let me = cluster.whoami().await.unwrap();
    assert_eq!(me.username, "system:admin");
    assert!(me.groups.contains(&"system:masters".to_owned()));

    // With etcd frozen the port still answers, and names the failing checks.
    genuine.freeze_etcd();
    // The apiserver checks etcd about once a second.
    let frozen = async {
        loop {
            match cluster.readyz().await.unwrap() {
                Readiness::Ready => {}
                Readiness::NotReady { failing } => break failing,
            }
        }
    };
    let failing = tokio::time::timeout(WAIT_MAX, frozen).await.unwrap();
    assert!(failing.iter().any(|check| check.starts_with("etcd")), "{failing:?}");
    let failure = cluster.await_ready(Duration::from_secs(1), &quiet).await.unwrap_err();
    assert!(
        matches!(&failure, KubeError::NotReady { last, .. } if last.contains("not ready")) || failure.is_transport(),
        "{failure}"
    );
    genuine.thaw_etcd();
    cluster.await_ready(WAIT_MAX, &quiet).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_wrong_server_fail_at_once() {
    let genuine = RealApiserver::start().await;
    ready(&genuine).await;
    let other_client = genuine.cluster_with(&genuine.kubeconfig_of_another_ca());
    assert!(matches!(other_client.readyz().await, Err(KubeError::Unauthorized)));
    let began = Instant::now();
    assert!(matches!(other_client.await_ready(WAIT_MAX, &quiet).await, Err(KubeError::Unauthorized)));
    let other = Authority::new();
    let impostor = genuine.cluster_with(&other.admin_kubeconfig(&other.pem));
    let error = impostor.await_ready(WAIT_MAX, &quiet).await.unwrap_err();
    assert!(matches!(error, KubeError::Untrusted(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "it returns at once, not after the time limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_watch_survives_a_restart_of_the_apiserver() {
    let mut genuine = RealApiserver::start().await;
    let cluster = ready(&genuine).await;
    let log = ProgressLog::default();
    let sink = log.sink();
    let waiting = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.await_kube_node_ready("gpu-1", None, WAIT_MAX, &sink).await })
    };
    log.until("no KubeNode yet").await;
    add_node(&cluster, "gpu-2").await;
    report(&cluster, "gpu-2", "True", "of another node").await;
    add_node(&cluster, "gpu-1").await;
    log.until("kubelet has not reported yet").await;
    report(&cluster, "gpu-1", "False", "cni plugin not initialized").await;
    log.until("kubelet not ready: cni plugin not initialized").await;

    genuine.stop_apiserver();
    log.until("refuses connections").await;
    genuine.start_apiserver();
    let after = ready(&genuine).await;
    let reported = Instant::now();
    report(&after, "gpu-1", "True", "kubelet is posting ready status").await;
    let node = waiting.await.unwrap().unwrap();
    println!("seen {:?} after the report", reported.elapsed());
    assert_eq!((node.name.as_str(), node.internal_ip.as_str()), ("gpu-1", "127.9.9.9"));
    assert!(node.ready);

    // After the time limit the error has the missing condition.
    report(&after, "gpu-1", "Unknown", "Kubelet stopped posting node status.").await;
    let over = cluster.await_kube_node_ready("gpu-1", None, Duration::from_secs(2), &quiet).await.unwrap_err();
    assert!(over.to_string().contains("Kubelet stopped posting node status."), "{over}");

    let names: Vec<_> = cluster.kube_nodes().await.unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["gpu-1", "gpu-2"]);
    assert!(cluster.delete_kube_node("gpu-1", None, WAIT_MAX, &quiet).await.unwrap());
    assert!(!cluster.delete_kube_node("gpu-1", None, WAIT_MAX, &quiet).await.unwrap());
}

fn terms(name: &str, role: AccessRole) -> AccessTerms {
    AccessTerms {
        name: name.into(),
        role,
        kind: "direct".into(),
        requested_by: "https://idp.example sub=ann".into(),
        seconds: 600,
        context: "prod".into(),
    }
}

/// Does the controller-manager's aggregation of the roles with the label `aggregate-to-view`.
async fn aggregate_view(cluster: &Cluster) {
    let rules = serde_json::json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
    cluster.request(Method::PATCH, path, Some((MERGE_PATCH, rules))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_grant_has_its_own_account_role_and_expiry() {
    let genuine = RealApiserver::start().await;
    let cluster = ready(&genuine).await;
    // No controller-manager runs here.
    let probed = cluster.try_delivery("prod").await.unwrap();
    assert_eq!(probed.username, "system:serviceaccount:gpuaas-access:delivery-probe");

    let began = Instant::now();
    let admin = cluster.grant_access(&terms("access-1", AccessRole::ClusterAdmin)).await.unwrap();
    println!("granted in {:?}", began.elapsed());
    // Without it, `view` has no rules: the delivery waits until it has.
    let requested = AccessTerms { seconds: 2_592_000, ..terms("access-2", AccessRole::ClusterView) };
    let early = tokio::time::timeout(Duration::from_millis(500), cluster.grant_access(&requested)).await;
    assert!(early.is_err(), "granted before the role had permissions: {early:?}");
    aggregate_view(&cluster).await;
    let view = cluster.grant_access(&requested).await.unwrap();
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    for (grant, lives_ms) in [(&admin, 600_000), (&view, 2_592_000_000)] {
        assert!((grant.expires_at_ms - now_ms - lives_ms).abs() < 60_000, "{grant:?}");
    }
    assert!(admin.kubeconfig.contains(&format!("server: \"https://{}:6443\"", genuine.address)));
    assert!(admin.kubeconfig.contains("current-context: \"prod\""));

    let (as_admin, as_viewer) = (genuine.cluster_with(&admin.kubeconfig), genuine.cluster_with(&view.kubeconfig));
    assert_eq!(as_admin.whoami().await.unwrap().username, "system:serviceaccount:gpuaas-access:access-1");
    as_admin.kube_nodes().await.unwrap();
    let readable = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    as_viewer.request(Method::GET, readable, None).await.expect("the permission is effective at once");
    let refused = as_viewer.delete_kube_node("gpu-1", None, WAIT_MAX, &quiet).await.unwrap_err();
    assert!(matches!(refused, KubeError::Forbidden(_)), "{refused}");

    // The same terms again: a second token of the same account.
    let again = cluster.grant_access(&terms("access-1", AccessRole::ClusterAdmin)).await.unwrap();
    genuine.cluster_with(&again.kubeconfig).kube_nodes().await.unwrap();
    // The same name with fewer rights: the binding changes.
    let lesser = cluster.grant_access(&terms("access-1", AccessRole::ClusterView)).await.unwrap();
    assert!(genuine.cluster_with(&lesser.kubeconfig).delete_kube_node("gpu-1", None, WAIT_MAX, &quiet).await.is_err());
    cluster.grant_access(&terms("access-1", AccessRole::ClusterAdmin)).await.unwrap();

    // Withdrawing one delivery does not affect the other.
    let withdrawn = cluster.withdraw_access("access-1").await.unwrap();
    assert!(withdrawn.service_account && withdrawn.binding);
    // The authorizer receives the deletion of the binding through its own watch, a moment later.
    let refused = async {
        loop {
            match as_admin.kube_nodes().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(refused) => return refused,
            }
        }
    };
    let after = tokio::time::timeout(Duration::from_secs(10), refused).await.expect("the permission is revoked");
    assert!(matches!(after, KubeError::Unauthorized | KubeError::Forbidden(_)), "{after}");
    assert_eq!(as_viewer.whoami().await.unwrap().username, "system:serviceaccount:gpuaas-access:access-2");
    let withdrawn = cluster.withdraw_access("access-1").await.unwrap();
    assert!(!withdrawn.service_account && !withdrawn.binding);
}

#[tokio::test(flavor = "multi_thread")]
async fn lifetime_out_of_range_is_refused_before_any_call() {
    let genuine = RealApiserver::prepare().await;
    for seconds in [0, 599, 2_592_001, u64::MAX] {
        let requested = AccessTerms { seconds, ..terms("access-1", AccessRole::ClusterAdmin) };
        let error = genuine.cluster().grant_access(&requested).await.unwrap_err();
        assert!(matches!(error, KubeError::Refusal(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_connection_is_replaced() {
    let mut genuine = RealApiserver::start().await;
    let cluster = ready(&genuine).await;
    cluster.kube_nodes().await.unwrap();
    genuine.stop_apiserver();
    let gone = cluster.kube_nodes().await.unwrap_err();
    assert!(gone.is_transport(), "{gone}");
    genuine.start_apiserver();
    cluster.await_ready(WAIT_MAX, &quiet).await.unwrap();
    cluster.kube_nodes().await.unwrap();
}

/// Simulates the tunnel of a node that lost power: no data arrives, and no end of the stream.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connection_is_replaced() {
    let genuine = RealApiserver::start().await;
    ready(&genuine).await;
    let (silence, silent) = tokio::sync::watch::channel(false);
    let address = genuine.address;
    let connector = move || {
        let mut silent = silent.clone();
        silent.mark_unchanged();
        async move {
            let mut far = tokio::net::TcpStream::connect((address, genuine::APISERVER_PORT)).await?;
            let (near, mut middle) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut middle, &mut far) => {}
                    // Both ends stay open, and no data moves.
                    _ = silent.changed() => std::future::pending().await,
                }
            });
            Ok(Box::new(near) as Box<dyn gpuaas_kube::ByteStream>)
        }
        .boxed()
    };
    let kubeconfig = Kubeconfig::parse(genuine.admin_kubeconfig.as_bytes()).unwrap();
    let cluster = Cluster::new(&kubeconfig, genuine.endpoint(), Arc::new(connector)).unwrap();
    cluster.kube_nodes().await.unwrap();
    silence.send(true).unwrap();
    let began = Instant::now();
    let lost = cluster.kube_nodes().await.unwrap_err();
    println!("silence noticed after {:?}: {lost}", began.elapsed());
    assert!(lost.is_transport(), "{lost}");
    cluster.kube_nodes().await.unwrap();
}

#[tokio::test]
async fn unreachable_node_is_not_a_refused_connection() {
    let authority = Authority::new();
    let kubeconfig = Kubeconfig::parse(authority.admin_kubeconfig(&authority.pem).as_bytes()).unwrap();
    let endpoint = gpuaas_kube::Endpoint { host: "127.0.0.1".into(), port: 6443 };
    let unreachable =
        || async { Err(std::io::Error::new(std::io::ErrorKind::NotConnected, "the node has no channel")) }.boxed();
    let cluster = Cluster::new(&kubeconfig, endpoint, Arc::new(unreachable)).unwrap();
    let error = cluster.readyz().await.unwrap_err();
    assert!(matches!(&error, KubeError::Unreachable(why) if why.contains("no channel")), "{error}");
}
