//! Watches KubeNodes with the administrator's certificate: sets the server's own role labels and the owners of node password Secrets.
//!
//! NodeRestriction forbids a kubelet to set its own role, so the server labels its KubeNode. Each node's password Secret is
//! owned by its KubeNode, so that another machine can take the name once the KubeNode is deleted.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::api_client::{Client, ClientError};
use crate::control_plane::member_name;
use crate::paths::HostPaths;
use crate::settings::Settings;
use crate::{log, node_password};

/// Delay before an interrupted watch is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// Limit of one watch event; a KubeNode is a few kilobytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The server's own node: its name, and the role labels and etcd annotations that the server sets on its KubeNode.
pub(crate) struct OwnNode {
    name: String,
    patch: Value,
    paths: HostPaths,
}

impl OwnNode {
    pub(crate) fn new(settings: &Settings) -> Self {
        let patch = json!({ "metadata": {
            "labels": {
                "node-role.kubernetes.io/control-plane": "true",
                "node-role.kubernetes.io/etcd": "true",
                "node-role.kubernetes.io/master": "true",
            },
            "annotations": {
                "etcd.rke2.cattle.io/node-address": settings.address.to_string(),
                "etcd.rke2.cattle.io/node-name": member_name(settings),
            },
        }});
        Self { name: settings.node_name.clone(), patch, paths: settings.paths.clone() }
    }
}

impl OwnNode {
    /// Stops the static pods of a booted server whose KubeNode was deleted: it has left the cluster. The unit keeps running.
    fn deleted(&self) {
        if self.paths.in_sandbox() {
            return;
        }
        log::info!("Local Node deleted or removed from etcd cluster, cleaning up server static pods");
        for name in ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"] {
            if let Err(error) = self.paths.remove_pod_manifest(name) {
                log::error!("Failed to remove static pod {name}: {error}");
            }
        }
    }
}

/// Watches the KubeNodes until the process ends, reopening the watch whenever it ends.
pub(crate) async fn follow(admin: Arc<Client>, own: OwnNode) {
    loop {
        if let Err(error) = watch(&admin, &own).await {
            log::warning!("Watch of nodes ended: {error}");
        }
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}

async fn watch(admin: &Arc<Client>, own: &OwnNode) -> Result<(), ClientError> {
    let mut body = admin.stream("/api/v1/nodes?watch=true").await?;
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Answer(error.to_string()))?;
        pending.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).map_err(|error| ClientError::Answer(error.to_string()))?;
            let metadata = &event["object"]["metadata"];
            if event["type"] == "ADDED" {
                added(admin, own, metadata).await;
            } else if event["type"] == "DELETED" && metadata["name"] == own.name.as_str() {
                own.deleted();
            }
        }
        if pending.len() > EVENT_BYTES_MAX {
            return Err(ClientError::Answer("an event is too long".to_owned()));
        }
    }
    Ok(())
}

async fn added(admin: &Arc<Client>, own: &OwnNode, metadata: &Value) {
    let (Some(name), Some(uid)) = (metadata["name"].as_str(), metadata["uid"].as_str()) else { return };
    if name == own.name
        && let Err(error) = admin.send_json(Method::PATCH, &format!("/api/v1/nodes/{name}"), &own.patch).await
    {
        log::error!("Failed to set node role labels: {error}");
    }
    let patch = json!({ "metadata": { "ownerReferences": node_password::owner(name, uid) } });
    match admin.send_json(Method::PATCH, &node_password::secret_path(name), &patch).await {
        Ok(_) => {}
        // A node that did not join through the supervisor has no password Secret.
        Err(error) if error.is(http::StatusCode::NOT_FOUND) => {}
        Err(error) => log::error!("Failed to set owner of node password secret of {name}: {error}"),
    }
}
