//! The control plane's own keys: it signs tasks and seals secrets with them. Nothing here ever prints one.

use gpuaas_model::SecretId;
use gpuaas_trust::{
    Authority, AuthorityError, SealError, SealingKey, SignError, SigningKeySet, TaskSigner, TaskStatement,
};
use zeroize::Zeroizing;

/// The version of the key set: one key, never changed. Rotation makes more of both.
const KEY_SET_VERSION: u64 = 1;

/// The keys in use.
pub struct Keys {
    control_plane: String,
    authority: Authority,
    signer: TaskSigner,
    sealing: SealingKey,
}

/// A signed task, ready to be recorded and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTask {
    /// The envelope as it travels.
    pub envelope: String,
    /// SHA-256 of its payload, 64 hex digits.
    pub sha256: String,
    /// The key that signed it.
    pub key_id: String,
}

impl Keys {
    /// The keys of the control plane of that id.
    pub fn new(control_plane: String, authority: Authority, signer: TaskSigner, sealing: SealingKey) -> Self {
        Self { control_plane, authority, signer, sealing }
    }

    /// The certificate authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The keys that agents accept tasks from, signed by the authority, as JSON.
    pub fn signed_key_set(&self) -> Result<serde_json::Value, AuthorityError> {
        let set = SigningKeySet { version: KEY_SET_VERSION, keys: vec![self.signer.public()] };
        serde_json::to_value(set.sign(&self.authority)?).map_err(|error| AuthorityError::Material(error.to_string()))
    }

    /// This control plane's id, as node certificates and tasks carry it.
    pub fn control_plane(&self) -> &str {
        &self.control_plane
    }

    /// Signs a task.
    pub fn sign(&self, statement: &TaskStatement) -> Result<SignedTask, SignError> {
        let envelope = self.signer.sign(statement)?;
        Ok(SignedTask {
            sha256: envelope.payload_sha256(),
            key_id: self.signer.key_id().to_owned(),
            envelope: envelope.to_json(),
        })
    }

    /// Seals a secret's bytes so that they open only under its own id.
    pub fn seal(&self, id: SecretId, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        self.sealing.seal(id.to_string().as_bytes(), plain)
    }

    /// Opens them again.
    pub fn unseal(&self, id: SecretId, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.sealing.open(id.to_string().as_bytes(), sealed)
    }
}
