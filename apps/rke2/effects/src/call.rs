//! The cluster calls that plans name; each returns its evidence.

use std::time::{Duration, Instant};

use gpuaas_app_rke2::Rke2Call;
use gpuaas_engine::effects::CallContext;
use gpuaas_kube::KubeNode;
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};

use crate::Rke2Effects;

/// The call ends this long before its caller's deadline, so that it can still report what it saw last.
const DEADLINE_MARGIN: Duration = Duration::from_millis(500);

impl Rke2Effects {
    pub(crate) async fn dispatch(&self, call: Rke2Call, context: &CallContext) -> Result<Value, TaskFailure> {
        match call {
            Rke2Call::ApiReady {} => self.api_ready(context).await,
            Rke2Call::KubeNodeReady { kube_node } => self.kube_node_ready(kube_node.as_str(), context).await,
            Rke2Call::KubeNodes {} => self.kube_nodes(context).await,
            Rke2Call::DeleteKubeNode { kube_node } => self.delete_kube_node(kube_node.as_str(), context).await,
            Rke2Call::DeliverAccess {} => self.try_delivery(context).await,
        }
    }

    /// Waits for `/readyz`; the returned version identifies the cluster that answered.
    async fn api_ready(&self, context: &CallContext) -> Result<Value, TaskFailure> {
        let (until, progress) = (wait_deadline(context), &*context.progress);
        self.on_cluster(context, |cluster| async move {
            let waited = cluster.await_ready(time_left(until), progress).await?;
            let version = cluster.version().await?.git_version;
            Ok(json!({
                "endpoint": cluster.endpoint().to_string(),
                "version": version,
                "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            }))
        })
        .await
    }

    /// Waits for a KubeNode. It waits for the apiserver first: before the apiserver is ready, a KubeNode may show a status from
    /// before a restart of its kubelet.
    async fn kube_node_ready(&self, name: &str, context: &CallContext) -> Result<Value, TaskFailure> {
        let (until, progress) = (wait_deadline(context), &*context.progress);
        self.on_cluster(context, |cluster| async move {
            cluster.await_ready(time_left(until), progress).await?;
            let node = cluster.await_kube_node_ready(name, time_left(until), progress).await?;
            Ok(evidence(&node))
        })
        .await
    }

    async fn kube_nodes(&self, context: &CallContext) -> Result<Value, TaskFailure> {
        let nodes = self.on_cluster(context, |cluster| async move { cluster.kube_nodes().await }).await?;
        Ok(json!({ "kube_nodes": nodes.iter().map(evidence).collect::<Vec<_>>() }))
    }

    async fn delete_kube_node(&self, name: &str, context: &CallContext) -> Result<Value, TaskFailure> {
        let deleted = self.on_cluster(context, |cluster| async move { cluster.delete_kube_node(name).await }).await?;
        Ok(json!({ "kube_node": name, "deleted": deleted }))
    }

    /// Proves that a delivery works: creates credentials without permissions, uses them through the tunnel, and removes them.
    async fn try_delivery(&self, context: &CallContext) -> Result<Value, TaskFailure> {
        let workload = &context.workload.name.to_string();
        self.on_cluster(context, |cluster| async move {
            let seen = cluster.try_delivery(workload).await?;
            Ok(json!({ "endpoint": cluster.endpoint().to_string(), "authenticated_as": seen.username }))
        })
        .await
    }
}

/// Returns the time at which the call ends. A repeated attempt gets the rest of the first one's time.
fn wait_deadline(context: &CallContext) -> Instant {
    Instant::now() + context.deadline.since(context.now).saturating_sub(DEADLINE_MARGIN)
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Returns the fields of a KubeNode that are kept as evidence.
fn evidence(node: &KubeNode) -> Value {
    let ready = node.conditions.iter().find(|condition| condition.kind == "Ready");
    json!({
        "kube_node": node.name,
        "uid": node.uid,
        "ready": node.ready,
        "unschedulable": node.unschedulable,
        "kubelet_version": node.kubelet_version,
        "container_runtime": node.container_runtime,
        "internal_ip": node.internal_ip,
        "reason": ready.map(|condition| condition.reason.as_str()),
        "since": ready.map(|condition| condition.since.as_str()),
    })
}
