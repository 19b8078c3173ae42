//! A minimal kubelet replacement: reports a node to the apiserver as a kubelet does. [`crate::pods`] runs its pods.
//!
//! It creates its KubeNode, posts its status and renews its Lease. It authenticates with the node's certificate, so the Node
//! authorizer and NodeRestriction apply to it as to a kubelet. As with a real kubelet, a KubeNode that is deleted while the
//! process runs reappears only after a restart, and a process that ends reports nothing: its Lease expires.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::api_client::{Client, ClientError};
use crate::identity::Identity;
use crate::settings::Settings;
use crate::{environment, log, node_facts};

/// The kubelet's defaults: a Lease of 40 s renewed every 10 s, an unchanged status posted every 5 minutes.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// Longest delay before a failed registration is repeated; as in the kubelet, delays start at 100 ms and double.
const REGISTER_RETRY_MAX: Duration = Duration::from_secs(7);
const REGISTER_RETRY_FIRST: Duration = Duration::from_millis(100);

/// The state that the Ready condition reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// NotReady during registration.
    Starting,
    /// NotReady because no CNI plugin is initialized.
    NoCni,
    /// Ready, but short of disk space.
    DiskPressure,
}

/// The node's object in the apiserver and a client that maintains it.
pub(crate) struct KubeNode {
    client: Arc<Client>,
    name: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    taints: Vec<Value>,
    capacity: Value,
    node_info: Value,
    addresses: Value,
}

impl KubeNode {
    /// Builds the object without registering it.
    pub(crate) fn new(settings: &Settings, node: &Identity) -> anyhow::Result<Self> {
        Ok(Self {
            client: node.client()?,
            name: node.name.clone(),
            labels: labels(settings, node),
            annotations: annotations(settings, node),
            taints: settings.options.list("node-taint").iter().filter_map(|text| taint(text)).collect(),
            capacity: node_facts::capacity(&settings.paths),
            node_info: node_facts::node_info(&settings.paths),
            addresses: node_facts::addresses(node),
        })
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// Creates the KubeNode or takes over an existing one of the same name, retrying without limit. Returns when the KubeNode
    /// carries this node's labels.
    pub(crate) async fn register(&self) {
        let mut wait = REGISTER_RETRY_FIRST;
        loop {
            match self.try_register().await {
                Ok(()) => return,
                Err(error) => log::error!("Unable to register node {:?} with API server: {error}", self.name),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REGISTER_RETRY_MAX);
        }
    }

    async fn try_register(&self) -> Result<(), ClientError> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": self.name, "labels": self.labels, "annotations": self.annotations },
            "spec": { "taints": self.taints },
            "status": self.status(Readiness::Starting),
        });
        match self.client.send_json(Method::POST, "/api/v1/nodes", &node).await {
            Ok(_) => Ok(()),
            Err(error) if error.is(StatusCode::CONFLICT) => {
                let metadata = json!({ "metadata": { "labels": self.labels, "annotations": self.annotations } });
                self.client.send_json(Method::PATCH, &self.path(), &metadata).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Posts the whole status.
    pub(crate) async fn post_status(&self, readiness: Readiness) -> Result<(), ClientError> {
        let patch = json!({ "status": self.status(readiness) });
        self.client.send_json(Method::PATCH, &format!("{}/status", self.path()), &patch).await.map(drop)
    }

    /// Renews the Lease and posts the status until the process ends; retries failures at the next renewal.
    pub(crate) async fn keep_alive(self, readiness: Readiness) {
        let mut ticks = tokio::time::interval(RENEW_EVERY);
        let mut posted: Option<Instant> = None;
        loop {
            ticks.tick().await;
            if let Err(error) = self.beat(readiness, &mut posted).await {
                log::error!("Error updating node status, will retry: {error}");
            }
        }
    }

    async fn beat(&self, readiness: Readiness, posted: &mut Option<Instant>) -> Result<(), ClientError> {
        let node = match self.client.get_json(&self.path()).await {
            Ok(node) => node,
            Err(error) if error.is(StatusCode::NOT_FOUND) => {
                log::error!("Error getting node: nodes {:?} not found", self.name);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let due = posted.is_none_or(|at| at.elapsed() >= STATUS_EVERY);
        if due || ready_status(&node) != condition_status(readiness) {
            self.post_status(readiness).await?;
            *posted = Some(Instant::now());
        }
        self.renew_lease(node["metadata"]["uid"].as_str().unwrap_or_default()).await
    }

    async fn renew_lease(&self, uid: &str) -> Result<(), ClientError> {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let path = format!("{leases}/{}", self.name);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({ "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now });
        match self.client.get_json(&path).await {
            Ok(mut lease) => {
                lease["spec"] = spec;
                self.client.send_json(Method::PUT, &path, &lease).await.map(drop)
            }
            Err(error) if error.is(StatusCode::NOT_FOUND) => {
                let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": self.name, "uid": uid }]);
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": { "name": self.name, "namespace": "kube-node-lease", "ownerReferences": owner },
                    "spec": spec,
                });
                self.client.send_json(Method::POST, leases, &lease).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn status(&self, readiness: Readiness) -> Value {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        };
        let (reason, message) = match readiness {
            Readiness::Ready | Readiness::DiskPressure => {
                ("KubeletReady", "the stand-in's light kubelet is posting ready status")
            }
            Readiness::Starting => ("KubeletNotReady", "the stand-in's light kubelet is starting"),
            Readiness::NoCni => (
                "KubeletNotReady",
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
                 returns error: cni plugin not initialized",
            ),
        };
        json!({
            "capacity": self.capacity,
            "allocatable": self.capacity,
            "addresses": self.addresses,
            "nodeInfo": self.node_info,
            "daemonEndpoints": { "kubeletEndpoint": { "Port": crate::settings::KUBELET_PORT } },
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                match readiness {
                    Readiness::DiskPressure => {
                        condition("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
                    }
                    Readiness::Ready | Readiness::Starting | Readiness::NoCni => {
                        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
                    }
                },
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", condition_status(readiness), reason, message),
            ],
        })
    }
}

fn condition_status(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Ready | Readiness::DiskPressure => "True",
        Readiness::Starting | Readiness::NoCni => "False",
    }
}

fn ready_status(node: &Value) -> &str {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

/// The labels that a kubelet may set on its own node. Role labels are set by the server.
fn labels(settings: &Settings, node: &Identity) -> Map<String, Value> {
    let architecture = node_facts::architecture();
    let mut labels: Map<String, Value> = [
        ("beta.kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("kubernetes.io/hostname", node.hostname.as_str()),
        ("kubernetes.io/os", "linux"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Value::from(value)))
    .collect();
    labels.extend(own_labels(settings));
    labels
}

/// The labels that RKE2 adds to those of a kubelet: the instance type and the `node-label` options.
pub(crate) fn own_labels(settings: &Settings) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert("node.kubernetes.io/instance-type".to_owned(), Value::from("rke2"));
    for label in settings.options.list("node-label") {
        let (name, value) = label.split_once('=').unwrap_or((&label, ""));
        labels.insert(name.to_owned(), Value::from(value));
    }
    labels
}

/// The annotations that RKE2 sets on its nodes.
pub(crate) fn annotations(settings: &Settings, node: &Identity) -> Map<String, Value> {
    let mut arguments = vec![settings.role.name().to_owned()];
    arguments.extend(settings.options.as_arguments());
    let text = json!(arguments).to_string();
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let variables =
        std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
    [
        ("rke2.io/hostname", node.hostname.clone()),
        ("rke2.io/internal-ip", node.address.to_string()),
        ("rke2.io/node-args", text),
        ("rke2.io/node-config-hash", hex::encode_upper(hash)),
        ("rke2.io/node-env", Value::Object(environment::shown(variables)).to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Value::from(value)))
    .collect()
}

/// Parses `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Value> {
    let (pair, effect) = text.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    Some(json!({ "key": key, "value": value, "effect": effect }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_with_and_without_a_value() {
        assert_eq!(taint("a/b=c:NoSchedule"), Some(json!({ "key": "a/b", "value": "c", "effect": "NoSchedule" })));
        assert_eq!(taint("a:NoExecute"), Some(json!({ "key": "a", "value": "", "effect": "NoExecute" })));
        assert_eq!(taint("a=b"), None);
    }

    #[test]
    fn a_node_without_conditions_is_not_taken_for_ready() {
        assert_eq!(ready_status(&json!({})), "");
        let node = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        assert_ne!(ready_status(&node), condition_status(Readiness::Ready));
    }
}
