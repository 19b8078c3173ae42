//! Waits for the KubeNode that a real kubelet registers, and adds the labels and annotations that RKE2's agent sets.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::api_client::{Client, ClientError};
use crate::identity::Identity;
use crate::kubenode;
use crate::log;
use crate::settings::Settings;

/// Delay before a failed attempt is repeated, such as while the apiserver does not respond yet.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Returns when the KubeNode exists and carries this node's labels and annotations. Retries without limit.
pub(super) async fn complete(settings: &Settings, identity: &Identity) -> anyhow::Result<()> {
    let client = identity.client()?;
    let path = format!("/api/v1/nodes/{}", identity.name);
    let patch = json!({ "metadata": {
        "labels": kubenode::own_labels(settings),
        "annotations": kubenode::annotations(settings, identity),
    } });
    let mut is_logged = false;
    loop {
        match try_to_complete(&client, identity, &path, &patch).await {
            Ok(()) => return Ok(()),
            Err(error) if !is_logged => {
                log::info!("Waiting for node {} to be registered: {error}", identity.name);
                is_logged = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn try_to_complete(
    client: &Arc<Client>,
    identity: &Identity,
    path: &str,
    patch: &Value,
) -> Result<(), ClientError> {
    // The watch's first event is the KubeNode's creation, or the KubeNode itself if it exists already.
    let selector = format!("/api/v1/nodes?watch=true&fieldSelector=metadata.name%3D{}", identity.name);
    let mut events = client.stream(&selector).await?;
    if events.frame().await.transpose().map_err(|error| ClientError::Answer(error.to_string()))?.is_none() {
        return Err(ClientError::Answer("the watch ended".to_owned()));
    }
    client.send_json(Method::PATCH, path, patch).await.map(drop)
}
