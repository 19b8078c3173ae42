//! Observes the cluster for a comparison with the workload's rows.

use std::collections::BTreeSet;

use gpuaas_app_rke2::{ObservedCluster, ObservedKubeNode, compared_labels};
use gpuaas_engine::effects::CallContext;
use gpuaas_kube::KubeNode;
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};

use crate::Rke2Effects;

impl Rke2Effects {
    /// Lists the KubeNodes once.
    pub(crate) async fn observe_cluster(&self, context: &CallContext) -> Result<Value, TaskFailure> {
        let nodes = self.on_cluster(context, |cluster| async move { cluster.kube_nodes().await }).await?;
        let compared = compared_labels(&context.workload);
        let kube_nodes = nodes.into_iter().map(|node| observed(node, &compared)).collect();
        Ok(json!(ObservedCluster { kube_nodes }))
    }
}

/// Keeps what is compared: a tenant's cluster may show much more.
pub(crate) fn observed(node: KubeNode, compared: &BTreeSet<String>) -> ObservedKubeNode {
    ObservedKubeNode {
        ready: node.ready,
        not_ready_reason: node.not_ready_reason(),
        ready_since: node.ready_condition().and_then(|condition| condition.since.parse().ok()),
        unschedulable: node.unschedulable,
        name: node.name,
        kubelet_version: node.kubelet_version,
        labels: node.labels.into_iter().filter(|(key, _)| compared.contains(key)).collect(),
    }
}
