//! Keeps new pods off a KubeNode, and lets them onto it again.

use serde_json::json;

use crate::{cluster::Cluster, error::KubeError};

impl Cluster {
    /// Cordons the KubeNode: the scheduler places no new pods on it, and running pods stay. Returns `false` if it was cordoned already.
    /// Fails with [`KubeError::NoKubeNode`] if there is none.
    pub async fn cordon(&self, name: &str) -> Result<bool, KubeError> {
        if self.kube_node(name).await?.unschedulable {
            return Ok(false);
        }
        self.patch_kube_node(name, json!({ "spec": { "unschedulable": true } })).await.map(|()| true)
    }

    /// Lets the KubeNode accept new pods again. Returns `false` if it was not cordoned. Fails with [`KubeError::NoKubeNode`] if there is
    /// none.
    pub async fn uncordon(&self, name: &str) -> Result<bool, KubeError> {
        if !self.kube_node(name).await?.unschedulable {
            return Ok(false);
        }
        self.patch_kube_node(name, json!({ "spec": { "unschedulable": null } })).await.map(|()| true)
    }
}
