//! Node passwords: a node proves at every join that it is the machine that first joined under its name.
//!
//! The node stores the password; the cluster stores its scrypt hash in an immutable Secret, in RKE2's format
//! (`$1:<salt>:15:8:1:<hash>`).

use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api_client::{Client, ClientError};
use crate::paths::{self, HostPaths};
use crate::token;

const FILE: &str = "/etc/rancher/node/password";
const LOG_N: u8 = 15;
const BLOCK_SIZE: u32 = 8;
const PARALLELISM: u32 = 1;
const HASH_BYTES: usize = 64;

/// The text with which an agent or server logs that its node password was rejected.
pub(crate) const REJECTED: &str = "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server \
     node-passwd entry, try enabling a unique node name with the --with-node-id flag";

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    Rejected,
}

/// Returns this node's password. The first call generates the file: 32 hex characters and a newline, mode 0600.
pub(crate) fn load_or_create(host: &HostPaths) -> anyhow::Result<String> {
    let file = host.at(FILE);
    if let Some(text) = paths::read_optional(&file)? {
        return Ok(text.trim().to_owned());
    }
    let password = token::generate()?;
    paths::make_dir(&host.at("/etc/rancher/node"), 0o755)?;
    paths::write_durable(&file, 0o600, format!("{password}\n"))?;
    Ok(password)
}

/// The API path of the Secret with a node's password hash.
pub(crate) fn secret_path(node: &str) -> String {
    format!("/api/v1/namespaces/kube-system/secrets/{node}.node-password.rke2")
}

/// Checks `password` against the hash in the cluster; creates the Secret if the node has none.
pub(crate) async fn check(admin: &Arc<Client>, node: &str, password: &str) -> anyhow::Result<Outcome> {
    match admin.get_json(&secret_path(node)).await {
        Ok(secret) => {
            let hash = secret["data"]["hash"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
            verify(password.to_owned(), String::from_utf8_lossy(&hash).into_owned()).await
        }
        Err(error) if error.is(StatusCode::NOT_FOUND) => create(admin, node, password).await,
        Err(error) => Err(error.into()),
    }
}

/// The owner of a node's password Secret: its KubeNode, with whose deletion the garbage collector deletes the Secret.
pub(crate) fn owner(node: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid }])
}

async fn create(admin: &Arc<Client>, node: &str, password: &str) -> anyhow::Result<Outcome> {
    let password = password.to_owned();
    let hash = tokio::task::spawn_blocking(move || hash(&password)).await??;
    let mut metadata = json!({ "name": format!("{node}.node-password.rke2"), "namespace": "kube-system" });
    // A KubeNode that is created later becomes the owner then.
    match admin.get_json(&format!("/api/v1/nodes/{node}")).await {
        Ok(found) => metadata["ownerReferences"] = owner(node, found["metadata"]["uid"].as_str().unwrap_or_default()),
        Err(error) if error.is(StatusCode::NOT_FOUND) => {}
        Err(error) => return Err(error.into()),
    }
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": true,
        "data": { "hash": STANDARD.encode(hash) },
    });
    match admin.send_json(Method::POST, "/api/v1/namespaces/kube-system/secrets", &secret).await {
        Ok(_) => Ok(Outcome::Accepted),
        // A concurrent request created the Secret first; the caller retries and is checked against it.
        Err(ClientError::Status { status: StatusCode::CONFLICT, .. }) => {
            Err(anyhow::anyhow!("node password is being recorded"))
        }
        Err(error) => Err(error.into()),
    }
}

fn hash(password: &str) -> anyhow::Result<String> {
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(|error| anyhow::anyhow!("failed to read random bytes: {error}"))?;
    let salt = hex::encode(salt);
    Ok(format!("$1:{salt}:{LOG_N}:{BLOCK_SIZE}:{PARALLELISM}:{}", derive(password, &salt)?))
}

async fn verify(password: String, recorded: String) -> anyhow::Result<Outcome> {
    tokio::task::spawn_blocking(move || {
        let parts: Vec<&str> = recorded.split(':').collect();
        let ["$1", salt, "15", "8", "1", expected] = parts.as_slice() else { return Ok(Outcome::Rejected) };
        let same = token::same_secret(&derive(&password, salt)?, expected);
        Ok(if same { Outcome::Accepted } else { Outcome::Rejected })
    })
    .await?
}

fn derive(password: &str, salt_hex: &str) -> anyhow::Result<String> {
    let salt = hex::decode(salt_hex).context("bad salt")?;
    let params =
        scrypt::Params::new(LOG_N, BLOCK_SIZE, PARALLELISM).map_err(|error| anyhow::anyhow!("scrypt: {error}"))?;
    let mut out = [0; HASH_BYTES];
    scrypt::scrypt(password.as_bytes(), &salt, &params, &mut out)
        .map_err(|error| anyhow::anyhow!("scrypt: {error}"))?;
    Ok(STANDARD_NO_PAD.encode(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_that_was_recorded_is_accepted() {
        let recorded = hash("one").unwrap();
        assert_eq!(verify("one".into(), recorded.clone()).await.unwrap(), Outcome::Accepted);
        assert_eq!(verify("two".into(), recorded).await.unwrap(), Outcome::Rejected);
        assert_eq!(verify("one".into(), "$1:broken".into()).await.unwrap(), Outcome::Rejected);
    }
}
