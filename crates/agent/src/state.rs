//! What the agent keeps on its node: its key, its certificate, whom it trusts. All under one folder, all private.

use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{FileSpec, Host};
use gpuaas_model::{Name, NodeId};
use gpuaas_trust::{NodeKey, SecretText, SignedKeySet, SigningKeySet, certificates_of_pem, names_issuer};
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
    /// The certificates of the authorities that are trusted, PEM, the one that issues first; an agent of before there could be several reads that one.
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
    /// The key that the certificate is for, PEM. With its certificate in one file: a renewal replaces both at once. Absent where an older agent kept it
    /// in `key.pem`.
    #[serde(default)]
    pub(crate) key: Option<SecretText>,
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
    let Some(identity) = identity else { return Ok(None) };
    let identity: Identity = serde_json::from_slice(&identity).map_err(|error| AgentError::State(error.to_string()))?;
    let key = match (&identity.key, key) {
        (Some(key), _) => key.clone(),
        (None, Some(key)) => SecretText::new(String::from_utf8_lossy(&key).into_owned()),
        (None, None) => return Ok(None),
    };
    let key = NodeKey::from_pem(key.expose()).map_err(|error| AgentError::State(error.to_string()))?;
    Ok(Some(State { identity, key }))
}

/// Keeps the identity, and takes the key of before away that an older agent kept apart.
pub(crate) async fn keep(host: &Arc<dyn Host>, identity: &Identity) -> Result<(), AgentError> {
    host.make_folder(Utf8Path::new(FOLDER), 0o700).await?;
    let content = serde_json::to_vec_pretty(identity).map_err(|error| AgentError::State(error.to_string()))?;
    host.write(&FileSpec { path: path("identity.json"), mode: 0o600, content }).await?;
    if identity.key.is_some() {
        host.remove(&path("key.pem")).await?;
    }
    Ok(())
}

impl State {
    /// The same identity with another certificate, and the key that it is for.
    pub(crate) fn renewed(&self, certificate: String, key: NodeKey) -> Self {
        let kept = SecretText::new(key.to_pem().to_string());
        Self { identity: Identity { certificate, key: Some(kept), ..self.identity.clone() }, key }
    }
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

    /// The certificates of the authorities that are trusted, the one that issues first.
    pub(crate) fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, AgentError> {
        certificates_of_pem(&self.authority).map_err(|error| AgentError::State(error.to_string()))
    }

    /// The same identity with a key set that was verified, and the authorities that it names: both are kept at once, so that the agent never holds keys
    /// of an authority that it does not trust.
    pub(crate) fn with_key_set(&self, signed: &SignedKeySet, set: &SigningKeySet) -> Self {
        let authority = match set.authorities.as_slice() {
            [] => self.authority.clone(),
            named => named.concat(),
        };
        Self { key_set: signed.clone(), authority, ..self.clone() }
    }

    /// Whether the certificate is of another authority than the one that issues: it is to be renewed now.
    pub(crate) fn is_of_former_authority(&self) -> Result<bool, AgentError> {
        let (certificate, authorities) = (self.certificate()?, self.authorities()?);
        Ok(authorities.first().is_some_and(|issuing| !names_issuer(&certificate, issuing)))
    }

    /// The node's certificate.
    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>, AgentError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| AgentError::State(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::test_host::{enrolled_nobody, sandbox};

    fn pem(key: &NodeKey) -> String {
        key.to_pem().to_string()
    }

    #[tokio::test]
    async fn key_that_was_kept_apart_is_read_and_goes_with_the_next_certificate() {
        let (_folder, host) = sandbox(&[]);
        let of_before = enrolled_nobody();
        keep(&host, &of_before.identity).await.unwrap();
        let key = FileSpec { path: path("key.pem"), mode: 0o600, content: pem(&of_before.key).into_bytes() };
        host.write(&key).await.unwrap();
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&of_before.key));

        let fresh = NodeKey::generate().unwrap();
        let renewed = loaded.renewed("another certificate".to_owned(), fresh);
        keep(&host, &renewed.identity).await.unwrap();
        assert!(host.read(&path("key.pem"), FILE_BYTES_MAX).await.unwrap().is_none(), "the key of before is gone");
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&renewed.key));
        assert_ne!(pem(&loaded.key), pem(&of_before.key));
        assert_eq!(loaded.identity.certificate, "another certificate");
    }

    #[tokio::test]
    async fn identity_without_any_key_is_none() {
        let (_folder, host) = sandbox(&[]);
        keep(&host, &enrolled_nobody().identity).await.unwrap();
        assert!(load(&host).await.unwrap().is_none());
    }
}
