//! The cluster calls that plans name; each returns its evidence.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gpuaas_app_rke2::Rke2Call;
use gpuaas_engine::effects::CallContext;
use gpuaas_kube::{DrainOptions, KubeError, KubeNode};
use gpuaas_model::{Code, Name, Timestamp};
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};

use crate::Rke2Effects;

/// The call ends this long before its caller's deadline, so that it can still report what it saw last.
const DEADLINE_MARGIN: Duration = Duration::from_millis(500);

impl Rke2Effects {
    pub(crate) async fn dispatch(&self, call: Rke2Call, context: &CallContext) -> Result<Value, TaskFailure> {
        match call {
            Rke2Call::ApiReady {} => self.api_ready(context).await,
            Rke2Call::KubeNodeReady { kube_node, started_at } => {
                self.kube_node_ready(kube_node.as_str(), started_at, context).await
            }
            Rke2Call::KubeNodes {} => self.kube_nodes(context).await,
            Rke2Call::CordonKubeNode { kube_node, may_be_missing } => {
                let cordoned = self.cordon(kube_node.as_str(), context).await;
                unless_missing(cordoned, may_be_missing, &kube_node)
            }
            Rke2Call::DrainKubeNode { kube_node, may_be_missing, force, delete_empty_dir_data } => {
                let options = DrainOptions { force, delete_empty_dir_data };
                let drained = self.drain(kube_node.as_str(), options, context).await;
                unless_missing(drained, may_be_missing, &kube_node)
            }
            Rke2Call::UncordonKubeNode { kube_node } => self.uncordon(kube_node.as_str(), context).await,
            Rke2Call::DeleteKubeNode { kube_node, uid } => {
                self.delete_kube_node(kube_node.as_str(), uid.as_deref(), context).await
            }
            Rke2Call::ForgetNodePassword { kube_node } => self.forget_node_password(kube_node.as_str(), context).await,
            Rke2Call::LabelKubeNode { kube_node, labels } => {
                self.label_kube_node(kube_node.as_str(), &labels, context).await
            }
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

    /// Waits for a KubeNode, and for the apiserver first, whose failing checks say more than a list that fails. A status from before
    /// `started_at` does not count; a time that no clock shows is never reached.
    async fn kube_node_ready(
        &self,
        name: &str,
        started_at: Option<Timestamp>,
        context: &CallContext,
    ) -> Result<Value, TaskFailure> {
        let since = |at: Timestamp| jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(jiff::Timestamp::MAX);
        let started_at = started_at.map(since);
        let (until, progress) = (wait_deadline(context), &*context.progress);
        self.on_cluster(context, |cluster| async move {
            cluster.await_ready(time_left(until), progress).await?;
            let node = cluster.await_kube_node_ready(name, started_at, time_left(until), progress).await?;
            Ok(evidence(&node))
        })
        .await
    }

    async fn kube_nodes(&self, context: &CallContext) -> Result<Value, TaskFailure> {
        let nodes = self.on_cluster(context, |cluster| async move { cluster.kube_nodes().await }).await?;
        Ok(json!({ "kube_nodes": nodes.iter().map(evidence).collect::<Vec<_>>() }))
    }

    /// Cordons a KubeNode. Returns its uid, which distinguishes it from a later one of the same name.
    async fn cordon(&self, name: &str, context: &CallContext) -> Result<Value, TaskFailure> {
        self.on_cluster(context, |cluster| async move {
            let changed = cluster.cordon(name).await?;
            let uid = cluster.kube_node(name).await?.uid;
            Ok(json!({ "kube_node": name, "changed": changed, "uid": uid }))
        })
        .await
    }

    async fn uncordon(&self, name: &str, context: &CallContext) -> Result<Value, TaskFailure> {
        let changed = self.on_cluster(context, |cluster| async move { cluster.uncordon(name).await }).await?;
        Ok(json!({ "kube_node": name, "changed": changed }))
    }

    /// Evicts the pods of a KubeNode. An interrupted drain is repeated: what was evicted is not on the KubeNode any more.
    async fn drain(&self, name: &str, options: DrainOptions, context: &CallContext) -> Result<Value, TaskFailure> {
        let (until, progress) = (wait_deadline(context), &*context.progress);
        let drained =
            self.on_cluster(context, |cluster| async move {
                cluster.drain(name, options, time_left(until), progress).await
            })
            .await?;
        Ok(json!({
            "kube_node": name,
            "evicted_pods": drained.evicted,
            "daemon_set_pods": drained.of_daemon_sets,
            "mirror_pods": drained.mirrors,
        }))
    }

    /// Deletes a KubeNode, and the record of its node's password with it. The cluster deletes that record, too, but some time later: until
    /// then it would refuse the same machine, which has a new password after its uninstallation.
    async fn delete_kube_node(
        &self,
        name: &str,
        uid: Option<&str>,
        context: &CallContext,
    ) -> Result<Value, TaskFailure> {
        let (until, progress) = (wait_deadline(context), &*context.progress);
        let deleted = self
            .on_cluster(context, |cluster| async move {
                let deleted = cluster.delete_kube_node(name, uid, time_left(until), progress).await?;
                match cluster.kube_node(name).await {
                    // Another one has registered under this name, and the record is its own.
                    Ok(_) => {}
                    // Also if an earlier attempt has deleted the KubeNode, and ended before it deleted the record.
                    Err(KubeError::NoKubeNode(_)) => {
                        cluster.forget_node_password(name).await?;
                    }
                    Err(error) => return Err(error),
                }
                Ok(deleted)
            })
            .await?;
        Ok(json!({ "kube_node": name, "deleted": deleted }))
    }

    async fn forget_node_password(&self, name: &str, context: &CallContext) -> Result<Value, TaskFailure> {
        let forgotten =
            self.on_cluster(context, |cluster| async move { cluster.forget_node_password(name).await }).await?;
        Ok(json!({ "kube_node": name, "forgotten": forgotten }))
    }

    async fn label_kube_node(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        context: &CallContext,
    ) -> Result<Value, TaskFailure> {
        let changed =
            self.on_cluster(context, |cluster| async move { cluster.label_kube_node(name, labels).await }).await?;
        Ok(json!({ "kube_node": name, "changed_labels": changed }))
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

/// Accepts that a KubeNode does not exist, if the call permits it: nothing runs on it then.
fn unless_missing(
    result: Result<Value, TaskFailure>,
    may_be_missing: bool,
    kube_node: &Name,
) -> Result<Value, TaskFailure> {
    match result {
        Err(failure) if may_be_missing && failure.code == Code::KubeNodeMissing => {
            Ok(json!({ "kube_node": kube_node, "missing": true }))
        }
        result => result,
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
    let ready = node.ready_condition();
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
        "reported_at": ready.and_then(|condition| condition.reported_at).map(|at| at.to_string()),
    })
}
