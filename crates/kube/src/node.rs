//! KubeNodes: Kubernetes' own Node objects, as far as the platform looks at them.

use k8s_openapi::api::core::v1::{Node, NodeCondition as CoreCondition};
use kube::api::{Api, DeleteParams, ListParams};
use serde::{Deserialize, Serialize};

use crate::{
    answer,
    cluster::Cluster,
    error::{KubeError, bounded},
};

/// Most conditions that are kept of one KubeNode; a kubelet sets five.
const CONDITIONS_MAX: usize = 32;

/// What a cluster says of one of its nodes. The kubelet's word, and after its death for about 44 s more (measured at 1.36.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeNode {
    /// Its name.
    pub name: String,
    /// Tells it from an earlier one of the same name.
    pub uid: String,
    /// Whether its `Ready` condition is `True`.
    pub ready: bool,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// For example `v1.36.3+rke2r1`.
    pub kubelet_version: String,
    /// For example `containerd://2.3.2`.
    pub container_runtime: String,
    /// Its `InternalIP`; empty while it has none.
    pub internal_ip: String,
    /// Its conditions.
    pub conditions: Vec<NodeCondition>,
}

/// A condition of a KubeNode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// For example `Ready` or `DiskPressure`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// For example `KubeletReady`.
    pub reason: String,
    /// In words.
    pub message: String,
    /// RFC 3339; empty when not told.
    pub since: String,
}

impl KubeNode {
    /// Why it is not ready, in words; `None` when it is.
    pub fn not_ready_because(&self) -> Option<String> {
        if self.ready {
            return None;
        }
        let ready = self.conditions.iter().find(|condition| condition.kind == "Ready");
        Some(match ready {
            None => "kubelet has not reported yet".into(),
            Some(condition) if condition.message.is_empty() => "kubelet not ready".into(),
            Some(condition) => format!("kubelet not ready: {}", condition.message),
        })
    }
}

impl From<Node> for KubeNode {
    fn from(node: Node) -> Self {
        let status = node.status.unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let conditions: Vec<_> =
            status.conditions.unwrap_or_default().into_iter().take(CONDITIONS_MAX).map(NodeCondition::from).collect();
        let internal_ip =
            status.addresses.unwrap_or_default().into_iter().find(|address| address.type_ == "InternalIP");
        Self {
            name: bounded(&node.metadata.name.unwrap_or_default()),
            uid: bounded(&node.metadata.uid.unwrap_or_default()),
            ready: conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True"),
            unschedulable: node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            kubelet_version: bounded(&info.kubelet_version),
            container_runtime: bounded(&info.container_runtime_version),
            internal_ip: internal_ip.map(|address| bounded(&address.address)).unwrap_or_default(),
            conditions,
        }
    }
}

impl From<CoreCondition> for NodeCondition {
    fn from(condition: CoreCondition) -> Self {
        Self {
            kind: bounded(&condition.type_),
            status: bounded(&condition.status),
            reason: bounded(&condition.reason.unwrap_or_default()),
            message: bounded(&condition.message.unwrap_or_default()),
            since: condition.last_transition_time.map(|time| time.0.to_string()).unwrap_or_default(),
        }
    }
}

impl Cluster {
    /// All of them, by name.
    pub async fn kube_nodes(&self) -> Result<Vec<KubeNode>, KubeError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let list = answer::in_time(api.list(&ListParams::default())).await?;
        let mut nodes: Vec<KubeNode> = list.items.into_iter().map(KubeNode::from).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// Deletes the KubeNode of that name; `false` when there was none.
    ///
    /// A kubelet that still runs does not bring it back until it restarts, and then without its cordon (measured): stop it first.
    pub async fn delete_kube_node(&self, name: &str) -> Result<bool, KubeError> {
        let api: Api<Node> = Api::all(self.client.clone());
        match answer::in_time(api.delete(name, &DeleteParams::background())).await {
            Ok(_) => Ok(true),
            Err(KubeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: Option<(&str, &str)>) -> KubeNode {
        let conditions: Vec<_> = ready
            .map(|(status, message)| serde_json::json!({"type": "Ready", "status": status, "message": message}))
            .into_iter()
            .collect();
        let node = serde_json::json!({"metadata": {"name": "gpu-1"}, "status": {"conditions": conditions}});
        KubeNode::from(serde_json::from_value::<Node>(node).unwrap())
    }

    #[test]
    fn a_node_is_ready_only_when_it_says_so() {
        assert!(node(Some(("True", "kubelet is posting ready status"))).ready);
        for not in [None, Some(("False", "")), Some(("Unknown", "Kubelet stopped posting node status."))] {
            assert!(!node(not).ready, "{not:?}");
        }
        assert_eq!(node(None).not_ready_because().unwrap(), "kubelet has not reported yet");
        assert_eq!(node(Some(("False", "cni"))).not_ready_because().unwrap(), "kubelet not ready: cni");
        assert_eq!(node(Some(("True", ""))).not_ready_because(), None);
    }
}
