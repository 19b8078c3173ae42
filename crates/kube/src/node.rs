//! KubeNodes: Kubernetes' Node objects, with the fields that the platform reads.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    calls::Call,
    cluster::Cluster,
    error::{KubeError, bounded},
    json::AtMost,
    limits::{CONTINUE_BYTES_MAX, NODES_BYTES_MAX, NODES_MAX, NODES_PER_PAGE},
};

/// Most conditions of one KubeNode; a kubelet sets five, node-problem-detector about ten more.
const CONDITIONS_MAX: usize = 64;
/// Most addresses of one KubeNode; a kubelet sets two, or three with IPv6.
const ADDRESSES_MAX: usize = 64;
/// API path of KubeNodes.
pub(crate) const NODES: &str = "/api/v1/nodes";

/// A node as its cluster reports it. The data comes from the kubelet, and stays for about 44 s after the kubelet dies (measured with
/// 1.36.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeNode {
    /// The KubeNode's name.
    pub name: String,
    /// Differs from the uid of an earlier KubeNode of the same name.
    pub uid: String,
    /// True if its `Ready` condition is `True`.
    pub ready: bool,
    /// True if the KubeNode is cordoned.
    pub unschedulable: bool,
    /// For example `v1.36.3+rke2r1`.
    pub kubelet_version: String,
    /// For example `containerd://2.3.2`.
    pub container_runtime: String,
    /// The `InternalIP` address; empty if it has none.
    pub internal_ip: String,
    /// The conditions, in the cluster's order.
    pub conditions: Vec<NodeCondition>,
}

/// A condition of a KubeNode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// The condition's type, for example `Ready` or `DiskPressure`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// For example `KubeletReady`.
    pub reason: String,
    /// A message for people.
    pub message: String,
    /// Time of the last transition in RFC 3339; empty if the cluster does not report it.
    pub since: String,
}

impl KubeNode {
    /// Returns the reason why the KubeNode is not ready, as text; `None` if it is ready.
    pub fn not_ready_reason(&self) -> Option<String> {
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

/// The parts of a Node that are read.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Node {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    pub(crate) resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: AtMost<Condition, CONDITIONS_MAX>,
    #[serde(default)]
    addresses: AtMost<Address, ADDRESSES_MAX>,
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    #[serde(default)]
    kubelet_version: String,
    #[serde(default)]
    container_runtime_version: String,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    last_transition_time: Option<Timestamp>,
}

/// A page of a list of Nodes.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeList {
    #[serde(default)]
    pub(crate) metadata: ListMetadata,
    #[serde(default)]
    pub(crate) items: AtMost<Node, NODES_PER_PAGE>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    #[serde(default)]
    pub(crate) resource_version: String,
    /// Token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    next: String,
}

impl From<Node> for KubeNode {
    fn from(node: Node) -> Self {
        let NodeStatus { conditions, addresses, node_info: info } = node.status;
        let conditions: Vec<_> = conditions.0.into_iter().map(NodeCondition::from).collect();
        let internal_ip = addresses.0.into_iter().find(|address| address.kind == "InternalIP");
        Self {
            name: bounded(&node.metadata.name),
            uid: bounded(&node.metadata.uid),
            ready: conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True"),
            unschedulable: node.spec.unschedulable,
            kubelet_version: bounded(&info.kubelet_version),
            container_runtime: bounded(&info.container_runtime_version),
            internal_ip: internal_ip.map(|address| bounded(&address.address)).unwrap_or_default(),
            conditions,
        }
    }
}

impl From<Condition> for NodeCondition {
    fn from(condition: Condition) -> Self {
        Self {
            kind: bounded(&condition.kind),
            status: bounded(&condition.status),
            reason: bounded(&condition.reason),
            message: bounded(&condition.message),
            since: condition.last_transition_time.map(|time| time.to_string()).unwrap_or_default(),
        }
    }
}

impl Cluster {
    /// Returns all KubeNodes, sorted by name. Reads them page by page.
    pub async fn kube_nodes(&self) -> Result<Vec<KubeNode>, KubeError> {
        let mut nodes: Vec<KubeNode> = Vec::new();
        let mut page = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("limit", &NODES_PER_PAGE.to_string())
                .append_pair("continue", &page)
                .finish();
            let call = Call::get(format!("{NODES}?{query}")).up_to(NODES_BYTES_MAX);
            let list: NodeList = self.calls.make(call).await?.object()?;
            nodes.extend(list.items.0.into_iter().map(KubeNode::from));
            page = list.metadata.next;
            if page.is_empty() {
                nodes.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(nodes);
            }
            if nodes.len() > NODES_MAX || page.len() > CONTINUE_BYTES_MAX {
                return Err(KubeError::Unreadable(format!("the cluster has more than {NODES_MAX} KubeNodes")));
            }
        }
    }

    /// Deletes the KubeNode with this name; returns `false` if there was none.
    ///
    /// Stop the kubelet first. A kubelet that still runs creates the KubeNode again when it restarts, and then without its cordon
    /// (measured).
    pub async fn delete_kube_node(&self, name: &str) -> Result<bool, KubeError> {
        check_object_name(name)?;
        let call = Call::delete(format!("{NODES}/{name}?propagationPolicy=Background"));
        match self.calls.make(call).await?.success() {
            Ok(_) => Ok(true),
            Err(KubeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Checks for a DNS subdomain, the form of Node names: the name becomes part of a path.
fn check_object_name(name: &str) -> Result<(), KubeError> {
    let may = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_name = (1..=253).contains(&name.len()) && name.bytes().all(may) && !name.starts_with('.');
    if is_name { Ok(()) } else { Err(KubeError::Refusal(format!("{name:?} is not a valid name of a KubeNode"))) }
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
    fn node_is_ready_only_if_its_condition_is_true() {
        assert!(node(Some(("True", "kubelet is posting ready status"))).ready);
        for not in [None, Some(("False", "")), Some(("Unknown", "Kubelet stopped posting node status."))] {
            assert!(!node(not).ready, "{not:?}");
        }
        assert_eq!(node(None).not_ready_reason().unwrap(), "kubelet has not reported yet");
        assert_eq!(node(Some(("False", "cni"))).not_ready_reason().unwrap(), "kubelet not ready: cni");
        assert_eq!(node(Some(("True", ""))).not_ready_reason(), None);
    }

    #[test]
    fn a_name_that_would_leave_its_path_is_refused() {
        for bad in ["", "a/b", "..", "../x", "A", "a?b", "a%2f", &"a".repeat(254)] {
            assert!(check_object_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_object_name("gpu-1.example").is_ok());
    }
}
