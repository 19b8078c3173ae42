//! The keys that an agent accepts tasks from: a versioned set, signed by the authority, that never goes back.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::VerifyingKey;
use gpuaas_model::KeyState;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::authority::{Authority, AuthorityError};

/// The public half of a task-signing key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskKey {
    /// Its id.
    pub kid: String,
    /// Its 32 bytes in base64.
    pub public: String,
    /// Where it is in its life.
    pub state: KeyState,
}

impl TaskKey {
    pub(crate) fn new(kid: String, key: &VerifyingKey, state: KeyState) -> Self {
        Self { kid, public: STANDARD.encode(key.as_bytes()), state }
    }
}

/// All keys, at one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningKeySet {
    /// Grows with every change.
    pub version: u64,
    /// The keys.
    pub keys: Vec<TaskKey>,
}

/// A key set with the authority's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedKeySet {
    /// JSON of the [`SigningKeySet`], as it was signed.
    pub set: String,
    /// The authority's signature (ECDSA P-256 over SHA-256, ASN.1) in base64.
    pub signature: String,
}

/// Why a key set was refused; the one in use stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not a key set.
    #[error("the signing-key set is malformed: {0}")]
    Malformed(String),
    /// Not signed by the authority.
    #[error("the signing-key set is not signed by the pinned authority")]
    Signature,
    /// Older than the one in use.
    #[error("the signing-key set has version {offered}, and version {held} is in use")]
    Older {
        /// The one offered.
        offered: u64,
        /// The one in use.
        held: u64,
    },
}

impl SigningKeySet {
    /// The key of that id, if tasks signed by it are accepted.
    pub fn accepted(&self, kid: &str) -> Option<VerifyingKey> {
        let key = self.keys.iter().find(|key| key.kid == kid && key.state.is_accepted())?;
        let bytes: [u8; 32] = STANDARD.decode(&key.public).ok()?.try_into().ok()?;
        VerifyingKey::from_bytes(&bytes).ok()
    }

    /// Signs the set with the authority's key.
    pub fn sign(&self, authority: &Authority) -> Result<SignedKeySet, AuthorityError> {
        let set = serde_json::to_string(self).map_err(|error| AuthorityError::Material(error.to_string()))?;
        let signature = STANDARD.encode(authority.sign(set.as_bytes())?);
        Ok(SignedKeySet { set, signature })
    }
}

impl SignedKeySet {
    /// The set, if `authority` signed it and it is not older than version `held`.
    pub fn verify(&self, authority: &CertificateDer<'_>, held: u64) -> Result<SigningKeySet, KeySetError> {
        let signature = STANDARD.decode(&self.signature).map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let (_, certificate) = x509_parser::parse_x509_certificate(authority)
            .map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let point = &certificate.public_key().subject_public_key.data;
        aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1, point)
            .verify(self.set.as_bytes(), &signature)
            .map_err(|_| KeySetError::Signature)?;
        let set: SigningKeySet =
            serde_json::from_str(&self.set).map_err(|error| KeySetError::Malformed(error.to_string()))?;
        if set.version < held {
            return Err(KeySetError::Older { offered: set.version, held });
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;
    use crate::dsse::TaskSigner;

    fn set(version: u64) -> SigningKeySet {
        SigningKeySet { version, keys: vec![TaskSigner::from_seed(&[7; 32]).public(KeyState::Active)] }
    }

    #[test]
    fn a_set_is_taken_from_its_authority_alone_and_never_goes_back() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let authority = Authority::generate("cp-1", now).unwrap();
        let signed = set(4).sign(&authority).unwrap();
        assert_eq!(signed.verify(authority.certificate(), 4), Ok(set(4)));
        assert_eq!(signed.verify(authority.certificate(), 5), Err(KeySetError::Older { offered: 4, held: 5 }));
        let stranger = Authority::generate("cp-1", now).unwrap();
        assert_eq!(signed.verify(stranger.certificate(), 0), Err(KeySetError::Signature));
        let spoiled = SignedKeySet { set: signed.set.replace(":4", ":9"), ..signed };
        assert_eq!(spoiled.verify(authority.certificate(), 0), Err(KeySetError::Signature));
    }

    #[test]
    fn retired_and_revoked_keys_are_not_accepted() {
        let kid = set(1).keys[0].kid.clone();
        for &state in KeyState::ALL {
            let mut keys = set(1);
            keys.keys[0].state = state;
            let accepted = matches!(state, KeyState::Staged | KeyState::Active | KeyState::Grace);
            assert_eq!(keys.accepted(&kid).is_some(), accepted, "{state}");
        }
    }
}
