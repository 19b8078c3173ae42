//! The calls to a cluster: their names, which steps contain, and their parameters, which are rendered for each attempt.

use std::collections::BTreeMap;

use gpuaas_model::{Name, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::operation::Eviction;

/// Name of a call. Rows contain its text, so a name is only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallName {
    ApiReady,
    KubeNodeReady,
    KubeNodes,
    CordonKubeNode,
    DrainKubeNode,
    UncordonKubeNode,
    DeleteKubeNode,
    ForgetNodePassword,
    LabelKubeNode,
    DeliverAccess,
}

/// A call with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", content = "parameters", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rke2Call {
    /// Waits until the apiserver is ready.
    ApiReady {},
    /// Waits until a KubeNode is ready.
    KubeNodeReady {
        /// Name of the KubeNode.
        kube_node: Name,
        /// When its node started RKE2, by the node's clock: what a kubelet reported before does not count. Without it everything counts, as
        /// after a start by an older agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Timestamp>,
    },
    /// Lists the KubeNodes.
    KubeNodes {},
    /// Keeps new pods off a KubeNode.
    CordonKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
        /// True if a KubeNode that does not exist is no failure.
        may_be_missing: bool,
    },
    /// Evicts the pods of a cordoned KubeNode and waits until they have ended. PodDisruptionBudgets hold; DaemonSet and mirror pods stay.
    DrainKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
        /// True if a KubeNode that does not exist is no failure.
        may_be_missing: bool,
        /// True if pods that no controller replaces are evicted, too.
        force: bool,
        /// True if pods with `emptyDir` volumes are evicted, too; that data is lost.
        delete_empty_dir_data: bool,
    },
    /// Lets a KubeNode accept new pods.
    UncordonKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
    },
    /// Deletes a KubeNode. One that has registered under its name since stays.
    DeleteKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
        /// Its uid; without one, the KubeNode of that name is deleted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<String>,
    },
    /// Deletes the secret with which RKE2 recognizes a node by its password, so that the node's present password is accepted at its next
    /// start. Succeeds if there is none.
    ForgetNodePassword {
        /// Name of the KubeNode.
        kube_node: Name,
    },
    /// Sets these labels of a KubeNode and leaves all others.
    LabelKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
        /// Labels with their values.
        labels: BTreeMap<String, String>,
    },
    /// Proves that credentials can be delivered.
    DeliverAccess {},
}

/// What the parameters of a call depend on.
pub(crate) struct Context<'a> {
    /// KubeNode of the step's member.
    pub(crate) kube_node: Option<&'a Name>,
    /// The uid of this KubeNode, if a call has returned it.
    pub(crate) uid: Option<&'a str>,
    /// When the member's node started RKE2, if it has said so.
    pub(crate) started_at: Option<Timestamp>,
    /// True if the operation removes the KubeNode anyway.
    pub(crate) is_removal: bool,
    /// What may be evicted.
    pub(crate) eviction: Eviction,
    /// Labels that the tenant's settings give to every KubeNode.
    pub(crate) labels: BTreeMap<String, String>,
}

impl CallName {
    const ALL: [Self; 10] = [
        Self::ApiReady,
        Self::KubeNodeReady,
        Self::KubeNodes,
        Self::CordonKubeNode,
        Self::DrainKubeNode,
        Self::UncordonKubeNode,
        Self::DeleteKubeNode,
        Self::ForgetNodePassword,
        Self::LabelKubeNode,
        Self::DeliverAccess,
    ];

    /// Returns the text of the name, the tag of [`Rke2Call`].
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ApiReady => "api_ready",
            Self::KubeNodeReady => "kube_node_ready",
            Self::KubeNodes => "kube_nodes",
            Self::CordonKubeNode => "cordon_kube_node",
            Self::DrainKubeNode => "drain_kube_node",
            Self::UncordonKubeNode => "uncordon_kube_node",
            Self::DeleteKubeNode => "delete_kube_node",
            Self::ForgetNodePassword => "forget_node_password",
            Self::LabelKubeNode => "label_kube_node",
            Self::DeliverAccess => "deliver_access",
        }
    }

    /// Returns the part of a step's key that names the call for a member.
    pub(crate) const fn step_name(self) -> &'static str {
        match self {
            Self::ApiReady => "api-ready",
            Self::KubeNodeReady => "wait-ready",
            Self::KubeNodes => "kube-nodes",
            Self::CordonKubeNode => "cordon",
            Self::DrainKubeNode => "drain",
            Self::UncordonKubeNode => "uncordon",
            Self::DeleteKubeNode => "delete-kube-node",
            Self::ForgetNodePassword => "forget-password",
            Self::LabelKubeNode => "label",
            Self::DeliverAccess => "deliver-access",
        }
    }

    /// Parses a name; `None` if this version has no such call.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// Returns the call with its parameters; `None` if it needs the KubeNode of a member and there is none.
    pub(crate) fn with(self, of: Context<'_>) -> Option<Rke2Call> {
        let kube_node = of.kube_node.cloned();
        Some(match self {
            Self::ApiReady => Rke2Call::ApiReady {},
            Self::KubeNodeReady => Rke2Call::KubeNodeReady { kube_node: kube_node?, started_at: of.started_at },
            Self::KubeNodes => Rke2Call::KubeNodes {},
            Self::CordonKubeNode => Rke2Call::CordonKubeNode { kube_node: kube_node?, may_be_missing: of.is_removal },
            Self::DrainKubeNode => {
                let Eviction { force, delete_empty_dir_data, .. } = of.eviction;
                let may_be_missing = of.is_removal;
                Rke2Call::DrainKubeNode { kube_node: kube_node?, may_be_missing, force, delete_empty_dir_data }
            }
            Self::UncordonKubeNode => Rke2Call::UncordonKubeNode { kube_node: kube_node? },
            Self::DeleteKubeNode => Rke2Call::DeleteKubeNode { kube_node: kube_node?, uid: of.uid.map(str::to_owned) },
            Self::ForgetNodePassword => Rke2Call::ForgetNodePassword { kube_node: kube_node? },
            Self::LabelKubeNode => Rke2Call::LabelKubeNode { kube_node: kube_node?, labels: of.labels },
            Self::DeliverAccess => Rke2Call::DeliverAccess {},
        })
    }
}

impl Rke2Call {
    /// Returns the parameters, an object.
    pub(crate) fn parameters(&self) -> Value {
        let mut tagged = serde_json::to_value(self).expect("a call is plain data with text keys");
        tagged["parameters"].take()
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Code;
    use gpuaas_planner::ClusterCall;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_call_is_parsed_from_its_name_and_its_rendered_parameters() {
        let kube_node = "gpu-1".parse().expect("a name");
        for name in CallName::ALL {
            let labels = BTreeMap::from([("rack".to_owned(), "b12".to_owned())]);
            let (eviction, uid) = (Eviction::default(), Some("0198c0de"));
            let started_at = Some(Timestamp::from_millis(1_790_000_000_007));
            let context = Context { kube_node: Some(&kube_node), uid, started_at, is_removal: true, eviction, labels };
            let call = name.with(context).expect("it has a KubeNode");
            let rendered = ClusterCall { call: name.as_str().to_owned(), parameters: call.parameters() };
            assert_eq!(rendered.parse(), Ok(call));
            assert_eq!(CallName::parse(name.as_str()), Some(name));
        }
    }

    #[test]
    fn call_that_an_earlier_version_rendered_is_parsed() {
        let rendered = ClusterCall { call: "kube_node_ready".to_owned(), parameters: json!({ "kube_node": "gpu-1" }) };
        let kube_node = "gpu-1".parse().expect("a name");
        assert_eq!(rendered.parse(), Ok(Rke2Call::KubeNodeReady { kube_node, started_at: None }));
    }

    #[test]
    fn unknown_calls_and_parameters_are_named_failures() {
        assert_eq!(CallName::parse("restart"), None);
        for (call, parameters) in
            [("restart", json!({})), ("kube_nodes", json!({ "all": true })), ("delete_kube_node", json!({}))]
        {
            let failure =
                ClusterCall { call: call.to_owned(), parameters }.parse::<Rke2Call>().expect_err("it is unknown");
            assert_eq!(failure.code, Code::TaskUnknown);
            assert!(failure.message.contains(call), "{}", failure.message);
        }
    }
}
