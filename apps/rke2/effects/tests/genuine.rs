//! The calls of a plan against a genuine apiserver, through tunnels that the tests can count and cut.
#![allow(clippy::unwrap_used)] // Helpers outside test functions unwrap too: a failed step fails the test.

#[path = "../../../../crates/kube/tests/genuine/mod.rs"]
mod genuine;

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures::StreamExt as _;
use genuine::RealApiserver;
use gpuaas_app_rke2::Rke2;
use gpuaas_app_rke2_effects::Rke2Effects;
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Secrets, Tunnel, Tunnels};
use gpuaas_model::{Code, MemberState, NodeId, SecretId, Timestamp};
use gpuaas_planner::{App as _, ClusterCall, ReleaseView, SecretView, WorkloadView, test_views};
use uuid::Uuid;
use zeroize::Zeroizing;

/// Enough for a cold start while other tests run.
const DEADLINE_MS: i64 = 120_000;

struct OneSecret(String);

#[async_trait]
impl Secrets for OneSecret {
    async fn open(&self, _: SecretId) -> Result<Zeroizing<Vec<u8>>, String> {
        Ok(Zeroizing::new(self.0.clone().into_bytes()))
    }
}

struct Tcp {
    address: IpAddr,
    opened: AtomicUsize,
    is_offline: Mutex<bool>,
}

#[async_trait]
impl Tunnels for Tcp {
    async fn open(&self, _: NodeId, port: u16) -> io::Result<Box<dyn Tunnel>> {
        if *self.is_offline.lock().unwrap() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the node has no channel"));
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        let stream = tokio::net::TcpStream::connect((self.address, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

struct GenuineCluster {
    genuine: RealApiserver,
    tunnels: Arc<Tcp>,
    effects: Rke2Effects,
    progress: Arc<Mutex<Vec<String>>>,
    workload: WorkloadView,
}

impl GenuineCluster {
    async fn new() -> Self {
        let genuine = RealApiserver::start().await;
        let tunnels = Tcp { address: genuine.address, opened: AtomicUsize::new(0), is_offline: Mutex::new(false) };
        let workload = workload(genuine.address);
        Self { genuine, tunnels: Arc::new(tunnels), effects: Rke2Effects::new(), progress: Arc::default(), workload }
    }

    fn context(&self, deadline_ms: i64) -> CallContext {
        let progress = self.progress.clone();
        CallContext {
            workload: self.workload.clone(),
            secrets: Arc::new(OneSecret(self.genuine.admin_kubeconfig.clone())),
            tunnels: self.tunnels.clone(),
            progress: Arc::new(move |text| progress.lock().unwrap().push(text)),
            now: Timestamp::from_millis(0),
            deadline: Timestamp::from_millis(deadline_ms),
        }
    }

    async fn call(&self, call: &str) -> Result<serde_json::Value, gpuaas_wire::task::TaskFailure> {
        self.effects.call(named(call), self.context(DEADLINE_MS)).await
    }
}

/// A call without parameters.
fn named(call: &str) -> ClusterCall {
    ClusterCall { call: call.to_owned(), parameters: serde_json::json!({}) }
}

/// A call about the KubeNode of the only member.
fn about_kube_node(call: &str) -> ClusterCall {
    ClusterCall { parameters: serde_json::json!({ "kube_node": "gpu-1" }), ..named(call) }
}

fn workload(address: IpAddr) -> WorkloadView {
    let mut server = test_views::member("server-1", 1, MemberState::Pending);
    server.machine.address = address.to_string();
    let secret = SecretView { id: SecretId::from_uuid(Uuid::from_u128(4)), sha256: "0".repeat(64) };
    WorkloadView {
        config: serde_json::json!({}),
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: vec![] },
        secrets: BTreeMap::from([("admin-kubeconfig".to_owned(), secret)]),
        ..test_views::workload(vec![server])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_s_calls_succeed_in_order_with_evidence_over_one_tunnel() {
    let cluster = GenuineCluster::new().await;
    let ready = cluster.call("api_ready").await.unwrap();
    assert_eq!(ready["version"], "v1.36.3+rke2r1");
    assert_eq!(ready["endpoint"], format!("https://{}:6443", cluster.genuine.address));
    let before = cluster.tunnels.opened.load(Ordering::SeqCst);

    let waits = cluster.effects.call(about_kube_node("kube_node_ready"), cluster.context(2_500)).await.unwrap_err();
    assert_eq!(waits.code, Code::ClusterNotReady);
    assert!(waits.message.contains("no KubeNode yet") && waits.message.contains("gpu-1"), "{}", waits.message);
    assert!(cluster.progress.lock().unwrap().iter().any(|text| text.starts_with("no KubeNode yet")));

    let proof = cluster.call("deliver_access").await.unwrap();
    assert_eq!(proof["authenticated_as"], "system:serviceaccount:gpuaas-access:delivery-probe");
    let cordon = |may_be_missing: bool| {
        let parameters = serde_json::json!({ "kube_node": "gpu-1", "may_be_missing": may_be_missing });
        ClusterCall { parameters, ..named("cordon_kube_node") }
    };
    for call in [cordon(false), about_kube_node("uncordon_kube_node")] {
        let missing = cluster.effects.call(call, cluster.context(DEADLINE_MS)).await.unwrap_err();
        assert_eq!(
            (missing.code, missing.message.as_str()),
            (Code::KubeNodeMissing, "the cluster has no KubeNode gpu-1")
        );
    }
    cluster.effects.call(cordon(true), cluster.context(DEADLINE_MS)).await.unwrap();
    let forgotten = cluster.effects.call(about_kube_node("forget_node_password"), cluster.context(DEADLINE_MS)).await;
    assert_eq!(forgotten.unwrap()["forgotten"], false);
    let deleted = cluster.effects.call(about_kube_node("delete_kube_node"), cluster.context(DEADLINE_MS)).await;
    assert_eq!(deleted.unwrap()["deleted"], false);
    assert_eq!(cluster.call("kube_nodes").await.unwrap()["kube_nodes"], serde_json::json!([]));
    // One more for the watch and one for the probe's own credentials; all other requests used the kept connection.
    assert_eq!(cluster.tunnels.opened.load(Ordering::SeqCst), before + 2);
    assert_eq!(cluster.call("restart").await.unwrap_err().code, Code::TaskUnknown);
}

/// Creates an object with the admin's rights.
async fn create(cluster: &GenuineCluster, path: &str, object: serde_json::Value) {
    let admin = cluster.genuine.cluster();
    admin.request(http::Method::POST, path, Some(("application/json", object))).await.unwrap();
}

/// Reports a status of `gpu-1` as its kubelet does.
async fn report_ready(cluster: &GenuineCluster, reported_at: &str) {
    let ready = serde_json::json!({"type": "Ready", "status": "True", "lastHeartbeatTime": reported_at});
    let status = serde_json::json!({"status": {"conditions": [ready]}});
    let patch = Some(("application/merge-patch+json", status));
    cluster.genuine.cluster().request(http::Method::PATCH, "/api/v1/nodes/gpu-1/status", patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_a_kube_node_deletes_its_password_at_once_and_no_other() {
    let cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    for name in ["gpu-1", "gpu-2"] {
        create(&cluster, "/api/v1/nodes", serde_json::json!({"kind": "Node", "metadata": {"name": name}})).await;
        let secret = serde_json::json!({"kind": "Secret", "metadata": {"name": format!("{name}.node-password.rke2")}});
        create(&cluster, "/api/v1/namespaces/kube-system/secrets", secret).await;
    }
    let delete = |uid: Option<&str>| {
        let parameters = serde_json::json!({ "kube_node": "gpu-1", "uid": uid });
        cluster.effects.call(ClusterCall { parameters, ..named("delete_kube_node") }, cluster.context(DEADLINE_MS))
    };
    // Another KubeNode has registered under the name since: its password is not that of the one to delete.
    assert_eq!(delete(Some("0198c0de-7a3b-7c11-9b54-0242ac120002")).await.unwrap()["deleted"], false);
    let admin = cluster.genuine.cluster();
    assert!(admin.forget_node_password("gpu-1").await.unwrap(), "it was there");
    let secret = serde_json::json!({"kind": "Secret", "metadata": {"name": "gpu-1.node-password.rke2"}});
    create(&cluster, "/api/v1/namespaces/kube-system/secrets", secret).await;

    assert_eq!(delete(None).await.unwrap()["deleted"], true);
    assert!(!admin.forget_node_password("gpu-1").await.unwrap(), "it is gone with its KubeNode");
    // An attempt that ended between both deletions left the record.
    let secret = serde_json::json!({"kind": "Secret", "metadata": {"name": "gpu-1.node-password.rke2"}});
    create(&cluster, "/api/v1/namespaces/kube-system/secrets", secret).await;
    assert_eq!(delete(None).await.unwrap()["deleted"], false);
    assert!(!admin.forget_node_password("gpu-1").await.unwrap(), "the next attempt finishes it");
    assert!(admin.forget_node_password("gpu-2").await.unwrap(), "it belongs to another KubeNode");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_from_before_the_start_of_the_kubelet_does_not_count_and_its_own_does() {
    let cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    create(&cluster, "/api/v1/nodes", serde_json::json!({"kind": "Node", "metadata": {"name": "gpu-1"}})).await;
    report_ready(&cluster, "2026-11-28T12:00:04Z").await;
    let started_at: Timestamp = "2026-11-28T12:00:05.900Z".parse().unwrap();
    let parameters = serde_json::json!({ "kube_node": "gpu-1", "started_at": started_at });
    let ready = ClusterCall { parameters, ..named("kube_node_ready") };
    let stale = cluster.effects.call(ready.clone(), cluster.context(2_500)).await.unwrap_err();
    assert_eq!(stale.code, Code::ClusterNotReady);
    assert!(stale.message.contains("kubelet has not reported since its start at 2026-11-28T12:00:05Z"), "{stale:?}");
    let undated = cluster.effects.call(about_kube_node("kube_node_ready"), cluster.context(DEADLINE_MS)).await;
    assert_eq!(undated.unwrap()["ready"], true, "an older agent does not date its start");
    let own = report_ready(&cluster, "2026-11-28T12:00:05Z");
    let (seen, ()) = tokio::join!(cluster.effects.call(ready, cluster.context(DEADLINE_MS)), own);
    assert_eq!(seen.unwrap()["reported_at"], "2026-11-28T12:00:05Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_reports_pods_that_need_a_flag_and_pods_that_do_not_end() {
    let cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    create(&cluster, "/api/v1/nodes", serde_json::json!({"kind": "Node", "metadata": {"name": "gpu-1"}})).await;
    let account = serde_json::json!({"kind": "ServiceAccount", "metadata": {"name": "default"}});
    create(&cluster, "/api/v1/namespaces/default/serviceaccounts", account).await;
    let bare = serde_json::json!({
        "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "main", "image": "example.com/main"}]},
    });
    create(&cluster, "/api/v1/namespaces/default/pods", bare).await;
    let drain = async |force: bool, deadline_ms| {
        let parameters = serde_json::json!({
            "kube_node": "gpu-1", "may_be_missing": false, "force": force, "delete_empty_dir_data": false,
        });
        let call = ClusterCall { parameters, ..named("drain_kube_node") };
        cluster.effects.call(call, cluster.context(deadline_ms)).await
    };
    let refused = drain(false, DEADLINE_MS).await.unwrap_err();
    assert_eq!(refused.code, Code::DrainRefused);
    assert!(refused.message.contains("default/bare"), "{}", refused.message);
    let blocked = drain(true, 2_500).await.unwrap_err();
    assert_eq!(blocked.code, Code::DrainBlocked);
    assert!(blocked.message.contains("default/bare (grace period until "), "{}", blocked.message);
    assert!(cluster.progress.lock().unwrap().iter().any(|text| text.starts_with("1 of 1 pods left")));
    let end = "/api/v1/namespaces/default/pods/bare?gracePeriodSeconds=0";
    cluster.genuine.cluster().request(http::Method::DELETE, end, None).await.unwrap();
    let drained = drain(false, DEADLINE_MS).await.unwrap();
    assert_eq!((&drained["evicted_pods"], &drained["mirror_pods"]), (&0.into(), &0.into()));
    let labels = serde_json::json!({ "kube_node": "gpu-1", "labels": { "rack": "b12" } });
    let label = ClusterCall { parameters: labels, ..named("label_kube_node") };
    let labelled = cluster.effects.call(label, cluster.context(DEADLINE_MS)).await.unwrap();
    assert_eq!(labelled["changed_labels"], serde_json::json!(["rack"]));
    let uncordoned = cluster.effects.call(about_kube_node("uncordon_kube_node"), cluster.context(DEADLINE_MS)).await;
    assert_eq!(uncordoned.unwrap()["changed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_cluster_shows_what_the_app_judges_its_absence_and_its_return() {
    let mut cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    let mut workload = cluster.workload.clone();
    workload.members[0].state = MemberState::Ready { since: Timestamp::from_millis(0) };
    let fault_of = |observed: Result<&serde_json::Value, &gpuaas_wire::task::TaskFailure>| {
        let judged = Rke2::default().judge_cluster(&workload, observed).unwrap();
        judged.members[0].1.fault.as_ref().map(|fault| fault.code.clone())
    };
    let mut shown = cluster.effects.follow(cluster.context(0));
    let empty = shown.next().await.unwrap().unwrap();
    assert_eq!(fault_of(Ok(&empty)).as_deref(), Some("kube_node_missing"));
    create(&cluster, "/api/v1/nodes", serde_json::json!({"kind": "Node", "metadata": {"name": "gpu-1"}})).await;
    let registered = shown.next().await.unwrap().unwrap();
    assert_eq!(fault_of(Ok(&registered)).as_deref(), Some("kube_node_not_ready"));
    cluster.genuine.stop_apiserver();
    let failure = shown.next().await.unwrap().unwrap_err();
    assert_eq!(fault_of(Err(&failure)).as_deref(), Some("cluster_unreachable"), "{failure:?}");
    assert!(failure.message.contains("gpu-1"), "{}", failure.message);
    cluster.genuine.start_apiserver();
    let again = async {
        loop {
            if let Some(Ok(observed)) = shown.next().await {
                return observed;
            }
        }
    };
    let again = tokio::time::timeout(std::time::Duration::from_secs(120), again).await.expect("it answers again");
    assert_eq!(fault_of(Ok(&again)).as_deref(), Some("kube_node_not_ready"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_kubeconfig_works_until_it_is_revoked() {
    let cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    let request = AccessRequest {
        name: "access-1".into(),
        kind: "direct".into(),
        role: "cluster-admin".into(),
        ttl_seconds: 3_600,
        requested_by: "ann@example".into(),
    };
    let delivered = cluster.effects.deliver_access(request, cluster.context(DEADLINE_MS)).await.unwrap();
    let person = cluster.genuine.cluster_with(&delivered.kubeconfig);
    person.kube_nodes().await.unwrap();
    for _ in 0..2 {
        cluster.effects.revoke_access(&delivered.service_account, cluster.context(DEADLINE_MS)).await.unwrap();
    }
    assert!(person.kube_nodes().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_cached_connection_is_replaced_and_an_absent_node_is_named() {
    let mut cluster = GenuineCluster::new().await;
    cluster.call("api_ready").await.unwrap();
    cluster.genuine.stop_apiserver();
    let refused = cluster.call("kube_nodes").await.unwrap_err();
    assert_eq!(refused.code, Code::ClusterUnreachable);
    assert!(refused.message.contains("gpu-1"), "{}", refused.message);
    cluster.genuine.start_apiserver();
    cluster.call("api_ready").await.unwrap();
    cluster.call("kube_nodes").await.unwrap();

    cluster.genuine.stop_apiserver();
    *cluster.tunnels.is_offline.lock().unwrap() = true;
    let offline = cluster.effects.call(named("api_ready"), cluster.context(1_500)).await.unwrap_err();
    assert_eq!(offline.code, Code::ClusterUnreachable);
    assert!(offline.message.contains("the node has no channel"), "{}", offline.message);
}

#[tokio::test]
async fn without_a_kubeconfig_or_an_address_nothing_is_opened() {
    let address = "127.0.0.1".parse().unwrap();
    let tunnels = Arc::new(Tcp { address, opened: AtomicUsize::new(0), is_offline: Mutex::new(false) });
    let mut context = CallContext {
        workload: workload(address),
        secrets: Arc::new(OneSecret("kind: Config\n".into())),
        tunnels: tunnels.clone(),
        progress: Arc::new(|_| {}),
        now: Timestamp::from_millis(0),
        deadline: Timestamp::from_millis(1_000),
    };
    let effects = Rke2Effects::new();
    assert_eq!(effects.call(named("api_ready"), context.clone()).await.unwrap_err().code, Code::ClusterUnreachable);
    context.workload.secrets.clear();
    assert_eq!(effects.call(named("api_ready"), context.clone()).await.unwrap_err().code, Code::ClusterNotReady);
    context.workload.members[0].machine.address.clear();
    assert_eq!(effects.call(named("api_ready"), context).await.unwrap_err().code, Code::ClusterUnreachable);
    assert_eq!(tunnels.opened.load(Ordering::SeqCst), 0);
}
