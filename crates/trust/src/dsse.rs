//! Task envelopes: DSSE (version 1 of the secure-systems-lab `dsse` specification) with one Ed25519 signature.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use gpuaas_model::{Entropy, KeyState, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    digest::sha256_hex,
    key_set::{SigningKeySet, TaskKey},
    pre_authentication::pre_authentication,
    statement::TaskStatement,
};

/// Payload type, covered by the signature.
pub const PAYLOAD_TYPE: &str = "application/vnd.gpuaas.task.v1+json";
/// Maximum length of an envelope in bytes: many times the length of a rendered configuration with its parameters.
const ENVELOPE_BYTES_MAX: usize = 256 * 1_024;

/// A signed task as sent to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    keyid: String,
    sig: String,
}

/// Why an envelope was refused. The task had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The data is not an envelope, or too long for one.
    #[error("the envelope is malformed: {0}")]
    Malformed(String),
    /// The signing key is unknown or no longer accepted.
    #[error("the envelope is signed by key {0}, which is not accepted")]
    Key(String),
    /// The signature does not match the key and the payload.
    #[error("the envelope's signature is invalid")]
    Signature,
    /// The task has expired.
    #[error("the envelope expired at {0}")]
    Expired(Timestamp),
}

/// Why a task could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The task cannot be written as JSON.
    #[error("the task cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The envelope would exceed the maximum length.
    #[error("the task is longer than {ENVELOPE_BYTES_MAX} bytes")]
    TooLong,
}

/// The control plane's task-signing key.
pub struct TaskSigner {
    key_id: String,
    key: SigningKey,
}

impl TaskSigner {
    /// Generates a key. Its id starts with `ed25519-` and contains the first 16 hex digits of the public key's SHA-256.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut seed = Zeroizing::new([0_u8; 32]);
        entropy.fill(&mut *seed);
        Self::from_seed(&seed)
    }

    /// Loads a stored key.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let key_id = format!("ed25519-{}", &sha256_hex(key.verifying_key().as_bytes())[..16]);
        Self { key_id, key }
    }

    /// Returns the key's seed for sealed storage.
    pub fn to_seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// Returns the key's id.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Returns the public key as listed in key sets.
    pub fn public(&self, state: KeyState) -> TaskKey {
        TaskKey::new(self.key_id.clone(), &self.key.verifying_key(), state)
    }

    /// Signs a payload of another type than tasks. Returns the signature in base64.
    pub(crate) fn sign_payload(&self, payload_type: &str, payload: &[u8]) -> String {
        STANDARD.encode(self.key.sign(&pre_authentication(payload_type, payload)).to_bytes())
    }

    /// Signs a task. Fails if the envelope would be longer than [`Envelope::BYTES_MAX`].
    pub fn sign(&self, statement: &TaskStatement) -> Result<Envelope, SignError> {
        let payload = serde_json::to_vec(statement)?;
        let signature = self.key.sign(&pre_authentication(PAYLOAD_TYPE, &payload));
        let envelope = Envelope {
            payload_type: PAYLOAD_TYPE.to_owned(),
            payload: STANDARD.encode(payload),
            signatures: vec![Signature { keyid: self.key_id.clone(), sig: STANDARD.encode(signature.to_bytes()) }],
        };
        if envelope.to_json().len() > ENVELOPE_BYTES_MAX { Err(SignError::TooLong) } else { Ok(envelope) }
    }
}

impl Envelope {
    /// Maximum length of an envelope in bytes.
    pub const BYTES_MAX: usize = ENVELOPE_BYTES_MAX;

    /// Returns the envelope as JSON for transport.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("three fields of text are always JSON")
    }

    /// Returns the SHA-256 of the payload for the audit; of the encoded text if it is not valid base64.
    pub fn payload_sha256(&self) -> String {
        sha256_hex(&STANDARD.decode(&self.payload).unwrap_or_else(|_| self.payload.clone().into_bytes()))
    }

    /// Returns the task if one of `keys` signed the envelope and the task has not expired at `now`. The caller checks the addressee, the
    /// fence and the type, which depend on the agent's state.
    pub fn verify(bytes: &[u8], keys: &SigningKeySet, now: Timestamp) -> Result<TaskStatement, EnvelopeError> {
        let statement = Self::open(bytes, keys)?;
        if statement.expires_at <= now {
            return Err(EnvelopeError::Expired(statement.expires_at));
        }
        Ok(statement)
    }

    /// Like [`Envelope::verify`], but ignores expiry: the agent answers a replay of an executed task from its ledger, however late it
    /// arrives.
    pub fn open(bytes: &[u8], keys: &SigningKeySet) -> Result<TaskStatement, EnvelopeError> {
        if bytes.len() > ENVELOPE_BYTES_MAX {
            return Err(EnvelopeError::Malformed(format!("it is longer than {ENVELOPE_BYTES_MAX} bytes")));
        }
        let malformed = |error: &dyn std::fmt::Display| EnvelopeError::Malformed(error.to_string());
        let envelope: Self = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
        let [signature] = envelope.signatures.as_slice() else {
            return Err(EnvelopeError::Malformed("it must carry exactly one signature".to_owned()));
        };
        if envelope.payload_type != PAYLOAD_TYPE {
            return Err(EnvelopeError::Malformed(format!("its payload must be {PAYLOAD_TYPE}")));
        }
        let payload = STANDARD.decode(&envelope.payload).map_err(|error| malformed(&error))?;
        let bytes = STANDARD.decode(&signature.sig).map_err(|error| malformed(&error))?;
        let sig = ed25519_dalek::Signature::from_slice(&bytes).map_err(|error| malformed(&error))?;
        let key: VerifyingKey =
            keys.accepted(&signature.keyid).ok_or_else(|| EnvelopeError::Key(signature.keyid.clone()))?;
        key.verify_strict(&pre_authentication(PAYLOAD_TYPE, &payload), &sig).map_err(|_| EnvelopeError::Signature)?;
        serde_json::from_slice(&payload).map_err(|error| malformed(&error))
    }
}

#[cfg(test)]
mod tests;
