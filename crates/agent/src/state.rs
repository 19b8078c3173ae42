//! The agent's files on its node: identity, key, certificate and trusted authorities. All are in one folder and readable only by root.

use std::sync::Arc;

use camino::Utf8Path;
use gpuaas_host::{FileSpec, Host, HostError};
use gpuaas_model::{Name, NodeId};
use gpuaas_trust::{
    NodeIdentity, NodeKey, SecretText, SignedKeySet, SigningKeySet, certificates_of_pem, certified_key_sha256,
    names_issuer, requested_key_sha256,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::{
    digested::{verified, with_digest},
    error::AgentError,
    ledger::{ExpectedLedger, LedgerId},
    paths::{FOLDER, IDENTITY, path},
    version,
};

/// File name of the key of an older agent.
const KEY: &str = "key.pem";
/// Largest file of the identity that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1_024 * 1_024;

/// The node that this machine is, and the control plane that it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Id of the node.
    pub(crate) node: NodeId,
    /// Id of the control plane.
    pub(crate) control_plane: String,
    /// Enrollment epoch of the node.
    pub(crate) epoch: u64,
    /// Addresses at which the node channel listens, each `host:port`.
    pub(crate) channels: Vec<String>,
    /// Certificates of the trusted authorities, PEM, the issuing authority first; an older agent, which supports only one, reads the first.
    pub(crate) authority: String,
    /// Certificate of the node, PEM.
    pub(crate) certificate: String,
    /// Signing keys in use.
    pub(crate) key_set: SignedKeySet,
    /// Name of the node when it enrolled; absent if an older agent enrolled it.
    #[serde(default)]
    pub(crate) name: Option<Name>,
    /// URL of the API at which it enrolled.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// SHA-256 of the enrollment string: a string that was redeemed here is not redeemed again.
    #[serde(default)]
    pub(crate) enrolled_by: Option<String>,
    /// Key of the certificate, PEM. Stored in the same file as the certificate, so that a renewal replaces both at once. Absent if an older
    /// agent stored it in `key.pem`.
    #[serde(default)]
    pub(crate) key: Option<SecretText>,
    /// Id of the ledger, which was on the disk before this identity: without that ledger the agent takes no tasks. Absent if an older agent
    /// enrolled the node, until the first start that finds its ledger.
    #[serde(default)]
    pub(crate) ledger: Option<LedgerId>,
}

/// The identity with its parsed key.
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) key: NodeKey,
}

/// Reads the identity; `None` before the first enrollment. Fails with [`AgentError::Identity`] if it is damaged or lost.
pub(crate) async fn load(host: &Arc<dyn Host>) -> Result<Option<State>, AgentError> {
    let file = path(IDENTITY);
    let read = read(host, &file).await?;
    let Some(text) = read else { return check_never_enrolled(host).await.map(|()| None) };
    let damaged = |what: &dyn std::fmt::Display| identity_error(&file, format!("is damaged: {what}"));
    let is_verified = verified("", &text).is_some();
    let identity: Identity = match serde_json::from_slice(&text) {
        Ok(identity) => identity,
        Err(_) if text.is_empty() => return Err(identity_error(&file, "is empty")),
        Err(error) => return Err(damaged(&error)),
    };
    // Older agents write neither a ledger id nor a digest.
    if !is_verified && (identity.ledger.is_some() || has_digest(&text)) {
        return Err(damaged(&"its digest does not match its content"));
    }
    let (key, of) = match &identity.key {
        Some(key) => (key.clone(), file.clone()),
        None => (read_key_file(host).await?, path(KEY)),
    };
    let key = NodeKey::from_pem(key.expose()).map_err(|error| identity_error(&of, format!("is damaged: {error}")))?;
    identity.check(&key).map_err(|error| match error {
        Mismatch::Key => identity_error(&of, "is damaged: its key does not match the certificate"),
        Mismatch::Other(what) => damaged(&what),
    })?;
    Ok(Some(State { identity, key }))
}

/// Returns true if the text has a digest field, correct or not.
fn has_digest(text: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    value.get("digest").is_some()
}

/// Refuses a machine that was enrolled and has lost its identity.
async fn check_never_enrolled(host: &Arc<dyn Host>) -> Result<(), AgentError> {
    for left in [path("ledger.jsonl"), path(KEY)] {
        if host.files().exists(&left).await? {
            let what = format!("is missing, although {left} exists: this machine was enrolled before");
            return Err(identity_error(&path(IDENTITY), what));
        }
    }
    Ok(())
}

/// Reads the separate key file of an older agent.
async fn read_key_file(host: &Arc<dyn Host>) -> Result<SecretText, AgentError> {
    let file = path(KEY);
    let read = read(host, &file).await?;
    let text = read.ok_or_else(|| identity_error(&file, format!("is missing, and {} has no key", path(IDENTITY))))?;
    Ok(SecretText::new(String::from_utf8_lossy(&text).into_owned()))
}

/// Reads a file of the identity.
async fn read(host: &Arc<dyn Host>, file: &Utf8Path) -> Result<Option<Vec<u8>>, AgentError> {
    host.files().read(file, FILE_BYTES_MAX).await.map_err(|error| read_error(file, error))
}

/// Classifies an error of a read. An error of the file system may pass and is no damage: systemd restarts the agent.
fn read_error(file: &Utf8Path, error: HostError) -> AgentError {
    match error {
        HostError::UnsafePath { .. } | HostError::TooLong { .. } => {
            identity_error(file, format!("cannot be read: {error}"))
        }
        passing => AgentError::Host(passing),
    }
}

fn identity_error(file: &Utf8Path, what: impl Into<String>) -> AgentError {
    AgentError::Identity { file: file.to_owned(), what: what.into() }
}

/// Writes the identity. If it includes the key, the separate key file of an older agent is removed.
pub(crate) async fn save(host: &Arc<dyn Host>, identity: &Identity) -> Result<(), AgentError> {
    host.files().make_folder(Utf8Path::new(FOLDER), 0o700).await?;
    let text = serde_json::to_string_pretty(identity).map_err(|error| AgentError::State(error.to_string()))?;
    let content = with_digest("", &text).0.into_bytes();
    host.files().write(&FileSpec { path: path(IDENTITY), mode: 0o600, content }).await?;
    if identity.key.is_some() {
        host.files().remove(&path(KEY)).await?;
    }
    Ok(())
}

impl State {
    /// Returns the same identity with another certificate and its key.
    pub(crate) fn renewed(&self, certificate: String, key: NodeKey) -> Self {
        let kept = SecretText::new(key.to_pem().to_string());
        Self { identity: Identity { certificate, key: Some(kept), ..self.identity.clone() }, key }
    }
}

/// Parts of an identity that do not belong together.
enum Mismatch {
    /// The key is not the certificate's.
    Key,
    Other(String),
}

impl Mismatch {
    fn of(error: impl std::fmt::Display) -> Self {
        Self::Other(error.to_string())
    }
}

impl Identity {
    /// Refuses parts that do not belong together. For an identity that an older agent wrote without a digest, this is the only check.
    fn check(&self, key: &NodeKey) -> Result<(), Mismatch> {
        let certificate = self.certificate().map_err(Mismatch::of)?;
        let of = NodeIdentity::of_certificate(&certificate).map_err(Mismatch::of)?;
        if (of.node, of.epoch, of.control_plane.as_str()) != (self.node, self.epoch, self.control_plane.as_str()) {
            return Err(Mismatch::Other("its certificate is of another node, enrollment or control plane".to_owned()));
        }
        let request = key.request_pem().map_err(Mismatch::of)?;
        let (certified, requested) = (certified_key_sha256(&certificate), requested_key_sha256(&request));
        if certified.map_err(Mismatch::of)? != requested.map_err(Mismatch::of)? {
            return Err(Mismatch::Key);
        }
        let authorities = self.authorities().map_err(Mismatch::of)?;
        self.key_set.open(&authorities).map(drop).map_err(Mismatch::of)
    }

    /// Returns the ledger that belongs to the identity.
    pub(crate) fn expected_ledger(&self) -> ExpectedLedger {
        ExpectedLedger { id: self.ledger.clone(), node: self.node, epoch: self.epoch }
    }

    /// Formats the identity for people.
    pub(crate) fn description(&self) -> String {
        let (name, url) = (self.shown_name(), self.url.as_deref().unwrap_or("an unknown address"));
        format!("{name} ({}) at {url}", self.node)
    }

    /// Formats the identity for scripts: on each line a keyword, a space and its value.
    pub(crate) fn status_lines(&self) -> String {
        let url = self.url.as_deref().unwrap_or_default();
        let (name, version) = (self.shown_name(), version::version());
        format!("node {}\nname {name}\nurl {url}\ncontrol-plane {}\nversion {version}\n", self.node, self.control_plane)
    }

    fn shown_name(&self) -> String {
        self.name.as_ref().map_or_else(|| self.node.to_string(), Name::to_string)
    }

    /// Returns the certificates of the trusted authorities, the issuing authority first.
    pub(crate) fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, AgentError> {
        certificates_of_pem(&self.authority).map_err(|error| AgentError::State(error.to_string()))
    }

    /// Returns the same identity with a verified key set and the authorities that the set names. Both are stored at once, so that the agent
    /// never holds keys of an authority that it does not trust.
    pub(crate) fn with_key_set(&self, signed: &SignedKeySet, set: &SigningKeySet) -> Self {
        let authority = match set.authorities.as_slice() {
            [] => self.authority.clone(),
            named => named.concat(),
        };
        Self { key_set: signed.clone(), authority, ..self.clone() }
    }

    /// Returns true if another authority than the issuing one signed the certificate: it must be renewed now.
    pub(crate) fn is_of_former_authority(&self) -> Result<bool, AgentError> {
        let (certificate, authorities) = (self.certificate()?, self.authorities()?);
        Ok(authorities.first().is_some_and(|issuing| !names_issuer(&certificate, issuing)))
    }

    /// Returns the node's certificate.
    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>, AgentError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| AgentError::State(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::sandbox;
    use gpuaas_model::Timestamp;
    use gpuaas_trust::{Authority, NodeIdentity, SigningKeySet};

    use super::*;
    use crate::clock::now;

    /// Returns an identity from a throw-away authority, in the form in which an older agent keeps the key separately.
    fn test_state() -> State {
        let authority = Authority::generate("test", now()).unwrap();
        let key = NodeKey::generate().unwrap();
        let node = NodeIdentity {
            control_plane: "test".to_owned(),
            node: "0198c0de-7a3b-7c11-9b54-0242ac120001".parse().unwrap(),
            epoch: 1,
        };
        let identity = Identity {
            node: node.node,
            control_plane: node.control_plane.clone(),
            epoch: node.epoch,
            channels: Vec::new(),
            authority: authority.certificate_pem().to_owned(),
            certificate: authority.issue_node(&key.request_pem().unwrap(), &node, now()).unwrap(),
            key_set: SigningKeySet {
                version: 0,
                keys: Vec::new(),
                expires_at: Timestamp::from_millis(i64::MAX),
                authorities: Vec::new(),
            }
            .sign(&authority)
            .unwrap(),
            name: None,
            url: None,
            enrolled_by: None,
            key: None,
            ledger: None,
        };
        State { identity, key }
    }

    fn pem(key: &NodeKey) -> String {
        key.to_pem().to_string()
    }

    #[tokio::test]
    async fn separate_key_file_is_read_and_removed_at_the_next_renewal() {
        let (_folder, host) = sandbox(&[]);
        let former = test_state();
        save(&host, &former.identity).await.unwrap();
        let key = FileSpec { path: path(KEY), mode: 0o600, content: pem(&former.key).into_bytes() };
        host.files().write(&key).await.unwrap();
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&former.key));

        let fresh = test_state();
        let identity = Identity { key: Some(SecretText::new(pem(&fresh.key))), ..fresh.identity };
        save(&host, &identity).await.unwrap();
        assert!(
            host.files().read(&path(KEY), FILE_BYTES_MAX).await.unwrap().is_none(),
            "the former key file must be removed"
        );
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&fresh.key));
        assert_eq!(loaded.identity.certificate, identity.certificate);
    }

    #[test]
    fn symlinked_identity_is_damage_and_a_file_system_error_is_not() {
        let file = path(IDENTITY);
        let link = HostError::UnsafePath { path: file.clone(), at: file.clone(), what: "is a link" };
        let source = std::io::ErrorKind::ResourceBusy.into();
        let temporary = HostError::File { action: "read", path: file.clone(), source };
        assert_eq!(read_error(&file, link).exit() as u8, 9);
        assert_ne!(read_error(&file, temporary).exit() as u8, 9, "systemd restarts the agent");
    }
}
