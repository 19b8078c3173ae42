//! Follows the KubeNodes of a genuine apiserver.
#![allow(clippy::unwrap_used)] // A failed step outside a test function is a failed test too.

mod genuine;

use std::time::{Duration, Instant};

use genuine::RealApiserver;
use gpuaas_kube::{Cluster, KubeError, NodeFollower};
use http::Method;

/// The apiserver starts in 3 to 9 s on two idle cores; tests run in parallel.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Media type with which Kubernetes changes a part of an object.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Name, readiness and cordon of a KubeNode.
type Seen = (String, bool, bool);

async fn add(cluster: &Cluster, name: &str) {
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    cluster.request(Method::POST, "/api/v1/nodes", Some(("application/json", node))).await.unwrap();
}

async fn patch(cluster: &Cluster, path: &str, change: serde_json::Value) {
    cluster.request(Method::PATCH, path, Some((MERGE_PATCH, change))).await.unwrap();
}

async fn report(cluster: &Cluster, name: &str, status: &str) {
    let ready = serde_json::json!({"type": "Ready", "status": status, "reason": "Test", "message": "reported"});
    let change = serde_json::json!({"status": {"conditions": [ready]}});
    patch(cluster, &format!("/api/v1/nodes/{name}/status"), change).await;
}

/// Follows until exactly these KubeNodes are shown. Failures in between are returned.
async fn until(follower: &mut NodeFollower<Seen>, expected: &[(&str, bool, bool)]) -> Vec<KubeError> {
    let mut failures = Vec::new();
    let mut last = Vec::new();
    let seen = async {
        loop {
            match follower.next().await {
                Ok(seen) => {
                    let is_so = seen
                        .iter()
                        .map(|(name, ready, cordon)| (name.as_str(), *ready, *cordon))
                        .eq(expected.iter().copied());
                    last = seen;
                    if is_so {
                        return;
                    }
                }
                Err(failure) => failures.push(failure),
            }
        }
    };
    let is_shown = tokio::time::timeout(WAIT_MAX, seen).await.is_ok();
    assert!(is_shown, "{expected:?} is not shown; the last is {last:?}, the failures are {failures:?}");
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_kube_nodes_are_followed_across_a_restart_of_the_apiserver() {
    let mut genuine = RealApiserver::start().await;
    let cluster = genuine.cluster();
    cluster.await_ready(WAIT_MAX, &|_| {}).await.unwrap();
    add(&cluster, "gpu-1").await;
    let mut follower = NodeFollower::new(genuine.cluster(), |node| (node.name, node.ready, node.unschedulable));
    until(&mut follower, &[("gpu-1", false, false)]).await;
    report(&cluster, "gpu-1", "True").await;
    add(&cluster, "gpu-2").await;
    until(&mut follower, &[("gpu-1", true, false), ("gpu-2", false, false)]).await;

    let began = Instant::now();
    report(&cluster, "gpu-1", "Unknown").await;
    until(&mut follower, &[("gpu-1", false, false), ("gpu-2", false, false)]).await;
    println!("    follower: a KubeNode that is not Ready is shown after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    patch(&cluster, "/api/v1/nodes/gpu-2", serde_json::json!({"spec": {"unschedulable": true}})).await;
    until(&mut follower, &[("gpu-1", false, false), ("gpu-2", false, true)]).await;
    assert!(cluster.delete_kube_node("gpu-1", None, WAIT_MAX, &|_| {}).await.unwrap());
    until(&mut follower, &[("gpu-2", false, true)]).await;

    // What changes while the apiserver is away is shown afterwards: its new watch cache does not know the old version.
    genuine.stop_apiserver();
    let refused = follower.next().await.unwrap_err();
    assert!(refused.is_transport(), "{refused}");
    genuine.start_apiserver();
    cluster.await_ready(WAIT_MAX, &|_| {}).await.unwrap();
    assert!(cluster.delete_kube_node("gpu-2", None, WAIT_MAX, &|_| {}).await.unwrap());
    add(&cluster, "gpu-3").await;
    until(&mut follower, &[("gpu-3", false, false)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apiserver_whose_store_is_frozen_does_not_count_as_answering() {
    let genuine = RealApiserver::start().await;
    let cluster = genuine.cluster();
    cluster.await_ready(WAIT_MAX, &|_| {}).await.unwrap();
    add(&cluster, "gpu-1").await;
    let mut follower = NodeFollower::new(genuine.cluster(), |node| (node.name, node.ready, node.unschedulable));
    until(&mut follower, &[("gpu-1", false, false)]).await;
    genuine.freeze_etcd();
    // The apiserver still serves the watch from its memory.
    let frozen = tokio::time::timeout(WAIT_MAX, follower.next()).await.unwrap().unwrap_err();
    assert!(frozen.to_string().contains("/readyz") || frozen.is_transport(), "{frozen}");
    genuine.thaw_etcd();
    until(&mut follower, &[("gpu-1", false, false)]).await;
}
