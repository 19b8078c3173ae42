//! RKE2's record of a node's password: a Secret with its hash. RKE2 refuses to register a node that presents another password under the
//! same name, for example after its reinstallation.

use crate::{cluster::Cluster, error::KubeError, node::node_path};

/// Namespace of the Secrets.
const NAMESPACE: &str = "kube-system";
/// What follows the KubeNode's name in the name of its Secret.
const SUFFIX: &str = ".node-password.rke2";

impl Cluster {
    /// Deletes the record of the password of the node with this name; RKE2 records the one that the node presents next. Returns `false` if
    /// there was no record.
    pub async fn forget_node_password(&self, name: &str) -> Result<bool, KubeError> {
        node_path(name)?;
        self.delete(format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}{SUFFIX}")).await
    }
}
