//! What the agent keeps on its node: its key, its certificate, whom it trusts. All under one folder, all private.

use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{FileSpec, Host};
use gpuaas_model::{Name, NodeId};
use gpuaas_trust::{NodeKey, SignedKeySet};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::{error::AgentError, version};

/// The agent's folder.
pub(crate) const FOLDER: &str = "/var/lib/gpuaas-agent";
/// Longest file of it that is read.
const FILE_BYTES_MAX: u64 = 1_024 * 1_024;

/// Who this node is and whom it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The node.
    pub(crate) node: NodeId,
    /// The control plane's id.
    pub(crate) control_plane: String,
    /// The node's enrollment epoch.
    pub(crate) epoch: u64,
    /// Where the node channel listens, each `host:port`.
    pub(crate) channels: Vec<String>,
    /// The authority's certificate, PEM.
    pub(crate) authority: String,
    /// The node's certificate, PEM.
    pub(crate) certificate: String,
    /// The signing keys in use.
    pub(crate) key_set: SignedKeySet,
    /// The node's name when it enrolled; absent where an older agent enrolled it.
    #[serde(default)]
    pub(crate) name: Option<Name>,
    /// The API at which it enrolled.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// SHA-256 of the enrollment string: one that was redeemed here is not redeemed again.
    #[serde(default)]
    pub(crate) enrolled_by: Option<String>,
}

/// The identity with its key.
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) key: NodeKey,
}

pub(crate) fn path(name: &str) -> Utf8PathBuf {
    Utf8Path::new(FOLDER).join(name)
}

/// What an earlier run kept; `None` before the first enrollment.
pub(crate) async fn load(host: &Arc<dyn Host>) -> Result<Option<State>, AgentError> {
    let (identity, key) =
        (host.read(&path("identity.json"), FILE_BYTES_MAX).await?, host.read(&path("key.pem"), FILE_BYTES_MAX).await?);
    let (Some(identity), Some(key)) = (identity, key) else { return Ok(None) };
    let identity = serde_json::from_slice(&identity).map_err(|error| AgentError::State(error.to_string()))?;
    let key = String::from_utf8(key).map_err(|error| AgentError::State(error.to_string()))?;
    let key = NodeKey::from_pem(&key).map_err(|error| AgentError::State(error.to_string()))?;
    Ok(Some(State { identity, key }))
}

/// Keeps the key. Before the certificate is asked for: a certificate without its key would be lost.
pub(crate) async fn keep_key(host: &Arc<dyn Host>, key: &NodeKey) -> Result<(), AgentError> {
    host.make_folder(Utf8Path::new(FOLDER), 0o700).await?;
    host.write(&FileSpec { path: path("key.pem"), mode: 0o600, content: key.to_pem().as_bytes().to_vec() }).await?;
    Ok(())
}

/// Keeps the identity.
pub(crate) async fn keep(host: &Arc<dyn Host>, identity: &Identity) -> Result<(), AgentError> {
    let content = serde_json::to_vec_pretty(identity).map_err(|error| AgentError::State(error.to_string()))?;
    host.write(&FileSpec { path: path("identity.json"), mode: 0o600, content }).await?;
    Ok(())
}

impl Identity {
    /// For people.
    pub(crate) fn described(&self) -> String {
        let (name, url) = (self.shown_name(), self.url.as_deref().unwrap_or("an unknown address"));
        format!("{name} ({}) at {url}", self.node)
    }

    /// For scripts: a word, a blank and its value, one a line.
    pub(crate) fn lines(&self) -> String {
        let url = self.url.as_deref().unwrap_or_default();
        let (name, version) = (self.shown_name(), version::version());
        format!("node {}\nname {name}\nurl {url}\ncontrol-plane {}\nversion {version}\n", self.node, self.control_plane)
    }

    fn shown_name(&self) -> String {
        self.name.as_ref().map_or_else(|| self.node.to_string(), Name::to_string)
    }

    /// The authority's certificate.
    pub(crate) fn authority(&self) -> Result<CertificateDer<'static>, AgentError> {
        CertificateDer::from_pem_slice(self.authority.as_bytes()).map_err(|error| AgentError::State(error.to_string()))
    }

    /// The node's certificate.
    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>, AgentError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| AgentError::State(error.to_string()))
    }
}
