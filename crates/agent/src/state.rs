//! What the agent keeps on its node: its key, its certificate, whom it trusts. All under one folder, all private.

use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
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
    version,
};

/// The agent's folder.
pub(crate) const FOLDER: &str = "/var/lib/gpuaas-agent";
/// Who this node is.
pub(crate) const IDENTITY: &str = "identity.json";
/// Where older agents keep the key.
const KEY: &str = "key.pem";
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
    /// The ledger, which was on the disk before this identity: without it no task is taken. Absent where an older agent enrolled the node, until the first
    /// start that finds its ledger.
    #[serde(default)]
    pub(crate) ledger: Option<LedgerId>,
}

/// The identity with its key.
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) key: NodeKey,
}

pub(crate) fn path(name: &str) -> Utf8PathBuf {
    Utf8Path::new(FOLDER).join(name)
}

/// The identity; `None` before the first enrollment. Fails with [`AgentError::Identity`] if it is not as it was written.
pub(crate) async fn load(host: &Arc<dyn Host>) -> Result<Option<State>, AgentError> {
    let file = path(IDENTITY);
    let read = read(host, &file).await?;
    let Some(text) = read else { return must_be_new(host).await.map(|()| None) };
    let damaged = |what: &dyn std::fmt::Display| identity_error(&file, format!("is damaged: {what}"));
    let is_verified = verified("", &text).is_some();
    let identity: Identity = match serde_json::from_slice(&text) {
        Ok(identity) => identity,
        Err(_) if text.is_empty() => return Err(identity_error(&file, "is empty")),
        Err(error) => return Err(damaged(&error)),
    };
    // Older agents write neither a ledger's id nor a digest.
    if !is_verified && (identity.ledger.is_some() || has_digest(&text)) {
        return Err(damaged(&"its digest is not that of its content"));
    }
    let (key, of) = match &identity.key {
        Some(key) => (key.clone(), file.clone()),
        None => (key_apart(host).await?, path(KEY)),
    };
    let key = NodeKey::from_pem(key.expose()).map_err(|error| identity_error(&of, format!("is damaged: {error}")))?;
    identity.check(&key).map_err(|error| match error {
        Mismatch::Key => identity_error(&of, "is damaged: its key is not the one that the certificate is for"),
        Mismatch::Other(what) => damaged(&what),
    })?;
    Ok(Some(State { identity, key }))
}

/// Whether the text says that it has a digest, right or not.
fn has_digest(text: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    value.get("digest").is_some()
}

/// Refuses a machine that has no identity any more.
async fn must_be_new(host: &Arc<dyn Host>) -> Result<(), AgentError> {
    for left in [path("ledger.jsonl"), path(KEY)] {
        if host.exists(&left).await? {
            let what = format!("is missing, and {left} is there: this machine was enrolled before");
            return Err(identity_error(&path(IDENTITY), what));
        }
    }
    Ok(())
}

/// The key as an older agent kept it.
async fn key_apart(host: &Arc<dyn Host>) -> Result<SecretText, AgentError> {
    let file = path(KEY);
    let read = read(host, &file).await?;
    let text = read.ok_or_else(|| identity_error(&file, format!("is missing, and {} has no key", path(IDENTITY))))?;
    Ok(SecretText::new(String::from_utf8_lossy(&text).into_owned()))
}

/// Reads a file of the identity.
async fn read(host: &Arc<dyn Host>, file: &Utf8Path) -> Result<Option<Vec<u8>>, AgentError> {
    host.read(file, FILE_BYTES_MAX).await.map_err(|error| read_error(file, error))
}

/// An error of the file system may pass and is no damage: systemd starts the agent again.
fn read_error(file: &Utf8Path, error: HostError) -> AgentError {
    match error {
        HostError::Unfit { .. } | HostError::TooLong { .. } => identity_error(file, format!("cannot be read: {error}")),
        passing => AgentError::Host(passing),
    }
}

fn identity_error(file: &Utf8Path, what: impl Into<String>) -> AgentError {
    AgentError::Identity { file: file.to_owned(), what: what.into() }
}

/// Keeps the identity, and takes the key of before away that an older agent kept apart.
pub(crate) async fn keep(host: &Arc<dyn Host>, identity: &Identity) -> Result<(), AgentError> {
    host.make_folder(Utf8Path::new(FOLDER), 0o700).await?;
    let text = serde_json::to_string_pretty(identity).map_err(|error| AgentError::State(error.to_string()))?;
    let content = with_digest("", &text).0.into_bytes();
    host.write(&FileSpec { path: path(IDENTITY), mode: 0o600, content }).await?;
    if identity.key.is_some() {
        host.remove(&path(KEY)).await?;
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

/// What does not belong together.
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
    /// Refuses parts that do not belong together: the one check of an identity that an older agent wrote without a digest.
    fn check(&self, key: &NodeKey) -> Result<(), Mismatch> {
        let certificate = self.certificate().map_err(Mismatch::of)?;
        let of = NodeIdentity::of_certificate(&certificate).map_err(Mismatch::of)?;
        if (of.node, of.epoch, of.control_plane.as_str()) != (self.node, self.epoch, self.control_plane.as_str()) {
            return Err(Mismatch::Other("its certificate is of another node, enrollment or control plane".to_owned()));
        }
        let request = key.request_pem().map_err(Mismatch::of)?;
        let (certified, held) = (certified_key_sha256(&certificate), requested_key_sha256(&request));
        if certified.map_err(Mismatch::of)? != held.map_err(Mismatch::of)? {
            return Err(Mismatch::Key);
        }
        let authorities = self.authorities().map_err(Mismatch::of)?;
        self.key_set.open(&authorities).map(drop).map_err(Mismatch::of)
    }

    /// The ledger that belongs to it.
    pub(crate) fn expected_ledger(&self) -> ExpectedLedger {
        ExpectedLedger { id: self.ledger.clone(), node: self.node, epoch: self.epoch }
    }

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
        let key = FileSpec { path: path(KEY), mode: 0o600, content: pem(&of_before.key).into_bytes() };
        host.write(&key).await.unwrap();
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&of_before.key));

        let fresh = enrolled_nobody();
        let identity = Identity { key: Some(SecretText::new(pem(&fresh.key))), ..fresh.identity };
        keep(&host, &identity).await.unwrap();
        assert!(host.read(&path(KEY), FILE_BYTES_MAX).await.unwrap().is_none(), "the key of before is gone");
        let loaded = load(&host).await.unwrap().expect("an identity");
        assert_eq!(pem(&loaded.key), pem(&fresh.key));
        assert_eq!(loaded.identity.certificate, identity.certificate);
    }

    #[test]
    fn link_in_the_place_of_the_identity_is_damage_and_an_error_of_the_file_system_is_not() {
        let file = path(IDENTITY);
        let link = HostError::Unfit { path: file.clone(), at: file.clone(), what: "is a link" };
        let source = std::io::ErrorKind::ResourceBusy.into();
        let passing = HostError::File { action: "read", path: file.clone(), source };
        assert_eq!(read_error(&file, link).exit() as u8, 9);
        assert_ne!(read_error(&file, passing).exit() as u8, 9, "its unit starts it again");
    }
}
