//! Tests drains and other changes of KubeNodes with a genuine apiserver. No kubelet runs: pods are bound by their creation, and a test ends
//! them as a kubelet would.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod genuine;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use genuine::RealApiserver;
use gpuaas_kube::{Cluster, DrainOptions, Drained, Hold, KubeError};
use http::Method;
use serde_json::{Value, json};

/// The apiserver starts in 3 to 9 s on two idle cores; tests run in parallel.
const WAIT_MAX: Duration = Duration::from_secs(120);
const CAREFUL: DrainOptions = DrainOptions { force: false, delete_empty_dir_data: false };
const MERGE_PATCH: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/web/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/web/poddisruptionbudgets";

fn quiet(_: String) {}

/// A cluster with the KubeNode `gpu-2` and the namespace `web`.
struct Site {
    cluster: Cluster,
    progress: Arc<Mutex<Vec<String>>>,
    _genuine: RealApiserver,
}

impl Site {
    async fn new() -> Self {
        let genuine = RealApiserver::start().await;
        let cluster = genuine.cluster();
        cluster.await_ready(WAIT_MAX, &quiet).await.unwrap();
        let site = Self { cluster, progress: Arc::default(), _genuine: genuine };
        site.post("/api/v1/nodes", json!({"kind": "Node", "metadata": {"name": "gpu-2", "labels": {"rack": "b1"}}}))
            .await;
        let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "ready"});
        site.patch("/api/v1/nodes/gpu-2/status", json!({"status": {"conditions": [ready]}})).await;
        site.post("/api/v1/namespaces", json!({"kind": "Namespace", "metadata": {"name": "web"}})).await;
        // The controller-manager would create it.
        let account = json!({"kind": "ServiceAccount", "metadata": {"name": "default"}});
        site.post("/api/v1/namespaces/web/serviceaccounts", account).await;
        site
    }

    async fn post(&self, path: &str, object: Value) -> Value {
        let made = self.cluster.request(Method::POST, path, Some(("application/json", object.clone()))).await;
        made.unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    async fn patch(&self, path: &str, change: Value) {
        self.cluster.request(Method::PATCH, path, Some((MERGE_PATCH, change))).await.unwrap();
    }

    /// Creates a running pod on the KubeNode, which `change` makes special; returns its uid.
    async fn pod(&self, name: &str, change: impl Fn(&mut Value)) -> String {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api", "uid": "7d0f1c1e-0000-4000-8000-000000000001",
            "controller": true,
        });
        let mut pod = json!({
            "kind": "Pod", "metadata": {"name": name, "labels": {"app": "api"}, "ownerReferences": [owner]},
            "spec": {
                "nodeName": "gpu-2", "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.com/main"}],
            },
        });
        change(&mut pod);
        let made = self.post(PODS, pod).await;
        self.phase(name, "Running").await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn phase(&self, name: &str, phase: &str) {
        let ready = json!({"type": "Ready", "status": "True"});
        self.patch(&format!("{PODS}/{name}/status"), json!({"status": {"phase": phase, "conditions": [ready]}})).await;
    }

    /// Ends a pod, as its kubelet does after the grace period.
    async fn end(&self, name: &str) {
        let path = format!("{PODS}/{name}?gracePeriodSeconds=0");
        self.cluster.request(Method::DELETE, &path, None).await.unwrap();
    }

    async fn budget(&self, name: &str) {
        let selector = json!({"matchLabels": {"app": "api"}});
        let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}});
        self.post(BUDGETS, budget).await;
        self.allow(name, 0).await;
    }

    /// Sets what a budget allows, as the disruption controller computes it.
    async fn allow(&self, name: &str, disruptions: u32) {
        let status = json!({
            "disruptionsAllowed": disruptions, "currentHealthy": 1 + disruptions, "desiredHealthy": 1, "expectedPods": 2,
            "observedGeneration": 1,
        });
        self.patch(&format!("{BUDGETS}/{name}/status"), json!({"status": status})).await;
    }

    fn drain(&self, options: DrainOptions, timeout: Duration) -> tokio::task::JoinHandle<Result<Drained, KubeError>> {
        let (cluster, progress) = (self.cluster.clone(), self.progress.clone());
        let sink = move |text| progress.lock().unwrap().push(text);
        tokio::spawn(async move { cluster.drain("gpu-2", options, timeout, &sink).await })
    }

    /// Waits until the pod has a deletion time.
    async fn ending(&self, name: &str) {
        self.until(async || {
            let pod = self.cluster.request(Method::GET, &format!("{PODS}/{name}"), None).await.unwrap();
            pod["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    }

    async fn reported(&self, part: &str) {
        self.until(async || self.progress.lock().unwrap().iter().any(|text| text.contains(part))).await;
    }

    async fn until(&self, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(began.elapsed() < WAIT_MAX, "{:?}", self.progress.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn without_controller(pod: &mut Value) {
    pod["metadata"]["ownerReferences"] = json!([]);
}

fn with_empty_dir(pod: &mut Value) {
    pod["spec"]["volumes"] = json!([{"name": "cache", "emptyDir": {}}]);
}

fn of_daemon_set(name: &'static str) -> impl Fn(&mut Value) {
    move |pod| {
        pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
        pod["metadata"]["ownerReferences"][0]["name"] = name.into();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_evicts_what_kubectl_evicts_and_asks_for_the_same_flags() {
    let site = Site::new().await;
    let template = json!({
        "metadata": {"labels": {"app": "logs"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    });
    let spec = json!({"selector": {"matchLabels": {"app": "logs"}}, "template": template});
    let daemon_set = json!({"kind": "DaemonSet", "metadata": {"name": "logs"}, "spec": spec});
    site.post("/apis/apps/v1/namespaces/web/daemonsets", daemon_set).await;
    site.pod("logs-1", of_daemon_set("logs")).await;
    site.pod("orphan-1", of_daemon_set("gone")).await;
    site.pod("mirror-1", |pod| {
        without_controller(pod);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "abc"});
    })
    .await;
    site.pod("bare-1", without_controller).await;
    site.pod("cached-1", with_empty_dir).await;
    site.pod("api-1", |_| {}).await;
    site.pod("done-1", without_controller).await;
    site.phase("done-1", "Succeeded").await;
    site.pod("elsewhere-1", |pod| pod["spec"]["nodeName"] = "gpu-3".into()).await;

    let refused = site.drain(CAREFUL, WAIT_MAX).await.unwrap().unwrap_err();
    let KubeError::DrainRefused(refusal) = &refused else { panic!("{refused}") };
    assert_eq!(refusal.unreplaced.to_string(), "web/bare-1, web/orphan-1");
    assert_eq!(refusal.with_empty_dir.to_string(), "web/cached-1");
    let pods = site.cluster.request(Method::GET, PODS, None).await.unwrap();
    let is_ending = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    assert!(!pods["items"].as_array().unwrap().iter().any(is_ending), "none was evicted");
    assert!(site.cluster.kube_node("gpu-2").await.unwrap().unschedulable);

    let drain = site.drain(DrainOptions { force: true, delete_empty_dir_data: true }, WAIT_MAX);
    for name in ["orphan-1", "bare-1", "cached-1", "api-1"] {
        site.ending(name).await;
    }
    site.reported("evicted and not yet ended").await;
    // A pod that appears meanwhile is evicted, too.
    site.pod("late-1", |_| {}).await;
    for name in ["orphan-1", "bare-1", "cached-1", "api-1"] {
        site.end(name).await;
    }
    site.ending("late-1").await;
    let ended = Instant::now();
    site.end("late-1").await;
    let drained = drain.await.unwrap().unwrap();
    println!("drained {:?} after the last pod: {drained:?}", ended.elapsed());
    // The finished pod ends with its eviction.
    assert_eq!(drained, Drained { evicted: 6, of_daemon_sets: 1, mirrors: 1 });
    assert!(ended.elapsed() < Duration::from_secs(2));
    let again = site.drain(CAREFUL, WAIT_MAX).await.unwrap().unwrap();
    assert_eq!(again, Drained { evicted: 0, of_daemon_sets: 1, mirrors: 1 });
    let elsewhere = site.cluster.request(Method::GET, &format!("{PODS}/elsewhere-1"), None).await.unwrap();
    assert!(!is_ending(&elsewhere));
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_holds_pods_until_it_allows_their_eviction() {
    let site = Site::new().await;
    site.budget("api").await;
    site.pod("api-1", |_| {}).await;
    let drain = site.drain(CAREFUL, WAIT_MAX);
    site.reported("1 of 1 pods left; web/api-1 is held by budget web/api (allows 0 disruptions: 1 healthy, 1 needed)")
        .await;
    site.allow("api", 1).await;
    site.ending("api-1").await;
    site.end("api-1").await;
    assert_eq!(drain.await.unwrap().unwrap().evicted, 1);

    site.allow("api", 0).await;
    site.pod("api-2", |_| {}).await;
    let blocked = site.drain(CAREFUL, Duration::from_secs(3)).await.unwrap().unwrap_err();
    let KubeError::DrainBlocked(block) = &blocked else { panic!("{blocked}") };
    assert!(blocked.to_string().contains("web/api-2 is held by budget web/api (allows 0"), "{blocked}");
    assert_eq!((block.remains.left, block.remains.held.count()), (1, 1));

    // With a second budget Kubernetes evicts no pod that both select.
    site.budget("other").await;
    let blocked = site.drain(CAREFUL, Duration::from_secs(3)).await.unwrap().unwrap_err();
    let KubeError::DrainBlocked(block) = &blocked else { panic!("{blocked}") };
    let Hold::Budgets(names) = &block.remains.held.named[0].by else { panic!("{blocked}") };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["web/api", "web/other"]);
    let pod = site.cluster.request(Method::GET, &format!("{PODS}/api-2"), None).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "no budget was bypassed");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_drain_continues_and_a_pod_that_does_not_end_is_named() {
    let site = Site::new().await;
    site.pod("api-1", |_| {}).await;
    site.pod("api-2", |pod| pod["metadata"]["finalizers"] = json!(["example.com/backup"])).await;
    let drain = site.drain(CAREFUL, WAIT_MAX);
    site.ending("api-1").await;
    site.ending("api-2").await;
    drain.abort();
    site.end("api-1").await;
    site.end("api-2").await;
    let blocked = site.drain(CAREFUL, Duration::from_secs(2)).await.unwrap().unwrap_err();
    assert!(blocked.to_string().contains("1 of 1 pods left; evicted and not yet ended: web/api-2 ("), "{blocked}");
    // A pod of the same name is another one.
    site.patch(&format!("{PODS}/api-2"), json!({"metadata": {"finalizers": null}})).await;
    site.pod("api-2", |pod| pod["spec"]["nodeName"] = "gpu-3".into()).await;
    assert_eq!(site.drain(CAREFUL, WAIT_MAX).await.unwrap().unwrap().evicted, 0);
    let other = site.cluster.request(Method::GET, &format!("{PODS}/api-2"), None).await.unwrap();
    assert!(other["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_node_is_cordoned_labelled_and_deleted_and_its_password_forgotten() {
    let site = Site::new().await;
    let cluster = &site.cluster;
    assert!(cluster.cordon("gpu-2").await.unwrap() && !cluster.cordon("gpu-2").await.unwrap());
    assert!(cluster.kube_node("gpu-2").await.unwrap().unschedulable);
    assert!(cluster.uncordon("gpu-2").await.unwrap() && !cluster.uncordon("gpu-2").await.unwrap());
    assert!(!cluster.kube_node("gpu-2").await.unwrap().unschedulable);

    let labels = BTreeMap::from([("rack", "b12"), ("row", "4")].map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(cluster.label_kube_node("gpu-2", &labels).await.unwrap(), ["rack", "row"]);
    assert!(cluster.label_kube_node("gpu-2", &labels).await.unwrap().is_empty());
    let taint = json!({"key": "gpu", "value": "a", "effect": "NoSchedule"});
    site.patch("/api/v1/nodes/gpu-2", json!({"spec": {"taints": [taint]}})).await;
    let node = cluster.kube_node("gpu-2").await.unwrap();
    assert_eq!((node.labels["rack"].as_str(), node.labels["row"].as_str()), ("b12", "4"));
    assert_eq!((node.taints[0].key.as_str(), node.taints[0].effect.as_str()), ("gpu", "NoSchedule"));

    let secret =
        json!({"kind": "Secret", "metadata": {"name": "gpu-2.node-password.rke2"}, "stringData": {"hash": "x"}});
    site.post("/api/v1/namespaces/kube-system/secrets", secret).await;
    assert!(cluster.forget_node_password("gpu-2").await.unwrap());
    assert!(!cluster.forget_node_password("gpu-2").await.unwrap());

    site.patch("/api/v1/nodes/gpu-2", json!({"metadata": {"finalizers": ["example.com/volumes"]}})).await;
    let earlier = Some("0198c0de-7a3b-7c11-9b54-0242ac120002");
    assert!(!cluster.delete_kube_node("gpu-2", earlier, WAIT_MAX, &quiet).await.unwrap());
    assert_eq!(cluster.kube_node("gpu-2").await.unwrap().uid, node.uid, "it has registered under the name since");
    let own = Some(node.uid.as_str());
    let held = cluster.delete_kube_node("gpu-2", own, Duration::from_secs(2), &quiet).await.unwrap_err();
    assert!(held.to_string().contains("held by finalizer example.com/volumes"), "{held}");
    let deleting = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.delete_kube_node("gpu-2", None, WAIT_MAX, &quiet).await })
    };
    site.patch("/api/v1/nodes/gpu-2", json!({"metadata": {"finalizers": null}})).await;
    assert!(deleting.await.unwrap().is_ok());
    for error in [
        cluster.cordon("gpu-2").await.unwrap_err(),
        cluster.uncordon("gpu-2").await.unwrap_err(),
        cluster.label_kube_node("gpu-2", &labels).await.unwrap_err(),
        cluster.drain("gpu-2", CAREFUL, WAIT_MAX, &quiet).await.unwrap_err(),
    ] {
        assert!(matches!(&error, KubeError::NoKubeNode(name) if name == "gpu-2"), "{error}");
    }
    assert!(!cluster.delete_kube_node("gpu-2", None, WAIT_MAX, &quiet).await.unwrap());
}
