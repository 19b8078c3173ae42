//! KubeNodes: Kubernetes' Node objects, with the fields that the platform reads.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    calls::Call,
    cluster::Cluster,
    error::KubeError,
    json::{AtMost, TextsAtMost},
    limits::{EVENT_BYTES_MAX, LABELS_MAX, NODES_MAX, NODES_PER_PAGE},
    list::Selection,
    object_name::is_object_name,
    text::bounded,
};

/// Most conditions of one KubeNode; a kubelet sets five, node-problem-detector about ten more.
const CONDITIONS_MAX: usize = 64;
/// Most addresses of one KubeNode; a kubelet sets two, or three with IPv6.
const ADDRESSES_MAX: usize = 64;
/// Most taints of one KubeNode; Kubernetes sets at most ten.
const TAINTS_MAX: usize = 64;
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
    /// The labels, at most 512.
    pub labels: BTreeMap<String, String>,
    /// The taints, in the cluster's order, at most 64.
    pub taints: Vec<Taint>,
    /// The conditions, in the cluster's order.
    pub conditions: Vec<NodeCondition>,
}

/// A taint of a KubeNode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// For example `node.kubernetes.io/unschedulable`.
    pub key: String,
    /// Often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
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
    /// Time of the kubelet's last report, in whole seconds by its node's clock; `None` if the cluster does not report it.
    pub reported_at: Option<Timestamp>,
}

impl KubeNode {
    /// Returns the condition `Ready`, if the kubelet has reported one.
    pub fn ready_condition(&self) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| condition.kind == "Ready")
    }

    /// Returns the reason why the KubeNode is not ready, as text; `None` if it is ready.
    pub fn not_ready_reason(&self) -> Option<String> {
        if self.ready {
            return None;
        }
        Some(match self.ready_condition() {
            None => "kubelet has not reported yet".into(),
            Some(condition) if condition.message.is_empty() => "kubelet not ready".into(),
            Some(condition) => format!("kubelet not ready: {}", condition.message),
        })
    }

    /// Like [`KubeNode::not_ready_reason`], for a kubelet that was started at this time by its node's clock: a report of an earlier kubelet
    /// does not count, however ready it says to be.
    ///
    /// Reports have whole seconds, so one of the same second counts. Every kubelet reports soon after its start, also if nothing changed.
    pub fn not_ready_reason_since(&self, started_at: Timestamp) -> Option<String> {
        match self.ready_condition().and_then(|condition| condition.reported_at) {
            Some(at) if at.as_second() >= started_at.as_second() => self.not_ready_reason(),
            Some(at) => Some(format!("kubelet has not reported since its start at {started_at:.0}, last at {at}")),
            None => Some("kubelet has not reported yet".into()),
        }
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
    #[serde(default)]
    labels: TextsAtMost<LABELS_MAX>,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    taints: AtMost<FoundTaint, TAINTS_MAX>,
}

#[derive(Debug, Deserialize)]
struct FoundTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
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
    last_heartbeat_time: Option<Timestamp>,
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
            labels: node.metadata.labels.0,
            taints: node.spec.taints.0.into_iter().map(Taint::from).collect(),
            conditions,
        }
    }
}

impl From<FoundTaint> for Taint {
    fn from(taint: FoundTaint) -> Self {
        Self { key: bounded(&taint.key), value: bounded(&taint.value), effect: bounded(&taint.effect) }
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
            reported_at: condition.last_heartbeat_time,
        }
    }
}

impl Cluster {
    /// Returns all KubeNodes, sorted by name. Reads them page by page.
    pub async fn kube_nodes(&self) -> Result<Vec<KubeNode>, KubeError> {
        let selection = Selection { path: NODES, fields: "", noun: "KubeNodes" };
        let keep = |node: Node| Ok(KubeNode::from(node));
        let mut nodes = self.list::<_, _, NODES_PER_PAGE>(&selection, NODES_MAX, keep).await?.items;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// Returns the KubeNode with this name; fails with [`KubeError::NoKubeNode`] if there is none.
    pub async fn kube_node(&self, name: &str) -> Result<KubeNode, KubeError> {
        let call = Call::get(node_path(name)?).up_to(EVENT_BYTES_MAX);
        let answer = self.calls.make(call).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Err(KubeError::NoKubeNode(name.to_owned()));
        }
        answer.object::<Node>().map(KubeNode::from)
    }

    /// Changes a part of a KubeNode; fails with [`KubeError::NoKubeNode`] if there is none.
    pub(crate) async fn patch_kube_node(&self, name: &str, change: serde_json::Value) -> Result<(), KubeError> {
        let call = Call::patch(node_path(name)?, change).up_to(EVENT_BYTES_MAX);
        match self.calls.make(call).await?.success() {
            Ok(_) => Ok(()),
            Err(KubeError::NotFound(_)) => Err(KubeError::NoKubeNode(name.to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Returns the API path of a KubeNode. Checks the name, which becomes a part of the path.
pub(crate) fn node_path(name: &str) -> Result<String, KubeError> {
    if is_object_name(name) {
        Ok(format!("{NODES}/{name}"))
    } else {
        Err(KubeError::Refusal(format!("{name:?} is not a valid name of a KubeNode")))
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
    fn only_what_the_started_kubelet_reports_counts() {
        let reported = |status: &str, at: Option<&str>| {
            let ready = serde_json::json!({"type": "Ready", "status": status, "lastHeartbeatTime": at});
            let node = serde_json::json!({"metadata": {"name": "gpu-1"}, "status": {"conditions": [ready]}});
            KubeNode::from(serde_json::from_value::<Node>(node).unwrap())
        };
        let started_at: Timestamp = "2026-11-28T12:00:05.900Z".parse().unwrap();
        let reason = |status: &str, at| reported(status, at).not_ready_reason_since(started_at);
        for counts in ["2026-11-28T12:00:05Z", "2026-11-28T12:00:06Z", "2026-11-28T13:00:00Z"] {
            assert_eq!(reason("True", Some(counts)), None, "{counts}");
            assert_eq!(reason("False", Some(counts)).unwrap(), "kubelet not ready");
        }
        for status in ["True", "False", "Unknown"] {
            let stale = reason(status, Some("2026-11-28T12:00:04Z")).unwrap();
            assert!(stale.starts_with("kubelet has not reported since its start at 2026-11-28T12:00:05Z"), "{stale}");
            assert_eq!(reason(status, None).unwrap(), "kubelet has not reported yet");
        }
        assert_eq!(node(None).not_ready_reason_since(started_at).unwrap(), "kubelet has not reported yet");
    }

    #[test]
    fn a_name_that_would_leave_its_path_is_refused() {
        assert!(matches!(node_path("../x"), Err(KubeError::Refusal(_))));
        assert_eq!(node_path("gpu-1.example").unwrap(), "/api/v1/nodes/gpu-1.example");
    }

    #[test]
    fn labels_and_taints_are_read_up_to_their_limits() {
        let read = |labels: usize, taints: usize| {
            let labels: BTreeMap<_, _> = (0..labels).map(|n| (format!("example.com/l{n}"), "yes")).collect();
            let taint =
                serde_json::json!({"key": "gpu", "value": "no\nline", "effect": "NoSchedule", "timeAdded": "x"});
            let node = serde_json::json!({"metadata": {"labels": labels}, "spec": {"taints": vec![taint; taints]}});
            serde_json::from_value::<Node>(node).map(KubeNode::from)
        };
        let node = read(LABELS_MAX, TAINTS_MAX).unwrap();
        assert_eq!((node.labels.len(), node.labels["example.com/l7"].as_str()), (LABELS_MAX, "yes"));
        assert_eq!(node.taints[0], Taint { key: "gpu".into(), value: "no line".into(), effect: "NoSchedule".into() });
        assert!(read(LABELS_MAX + 1, 0).is_err() && read(0, TAINTS_MAX + 1).is_err());
        assert!(read(0, 0).unwrap().labels.is_empty());
    }
}
