//! The calls to a cluster: their names, which steps contain, and their parameters, which are rendered for each attempt.

use gpuaas_model::Name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of a call. Rows contain its text, so a name is only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallName {
    ApiReady,
    KubeNodeReady,
    KubeNodes,
    DeleteKubeNode,
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
    },
    /// Lists the KubeNodes.
    KubeNodes {},
    /// Deletes a KubeNode.
    DeleteKubeNode {
        /// Name of the KubeNode.
        kube_node: Name,
    },
    /// Proves that credentials can be delivered.
    DeliverAccess {},
}

impl CallName {
    const ALL: [Self; 5] =
        [Self::ApiReady, Self::KubeNodeReady, Self::KubeNodes, Self::DeleteKubeNode, Self::DeliverAccess];

    /// Returns the text of the name, the tag of [`Rke2Call`].
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ApiReady => "api_ready",
            Self::KubeNodeReady => "kube_node_ready",
            Self::KubeNodes => "kube_nodes",
            Self::DeleteKubeNode => "delete_kube_node",
            Self::DeliverAccess => "deliver_access",
        }
    }

    /// Parses a name; `None` if this version has no such call.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// Returns the call about `kube_node`, the one of the step's member; `None` if the call needs one and there is none.
    pub(crate) fn about(self, kube_node: Option<&Name>) -> Option<Rke2Call> {
        Some(match self {
            Self::ApiReady => Rke2Call::ApiReady {},
            Self::KubeNodeReady => Rke2Call::KubeNodeReady { kube_node: kube_node?.clone() },
            Self::KubeNodes => Rke2Call::KubeNodes {},
            Self::DeleteKubeNode => Rke2Call::DeleteKubeNode { kube_node: kube_node?.clone() },
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
            let call = name.about(Some(&kube_node)).expect("it has a KubeNode");
            let rendered = ClusterCall { call: name.as_str().to_owned(), parameters: call.parameters() };
            assert_eq!(rendered.parse(), Ok(call));
            assert_eq!(CallName::parse(name.as_str()), Some(name));
        }
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
