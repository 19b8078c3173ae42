//! Signing-key set: the keys from which an agent accepts tasks, and the authorities that it trusts. The set is versioned and signed by an
//! authority that the agent already trusts. Its version never decreases, and it expires.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::VerifyingKey;
use gpuaas_model::{KeyState, Timestamp};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::{
    authority::{Authority, AuthorityError, certificates_of_pem},
    pre_authentication::pre_authentication,
};

/// Payload type of a signed set. The signature covers it, so that nothing else the authority signs is valid as a set.
const SIGNED_AS: &str = "application/vnd.gpuaas.signing-key-set.v1+json";

/// Public part of a task-signing key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskKey {
    /// Id of the key.
    pub kid: String,
    /// The 32 bytes of the key in base64.
    pub public: String,
    /// Lifecycle state of the key.
    pub state: KeyState,
}

impl TaskKey {
    pub(crate) fn new(kid: String, key: &VerifyingKey, state: KeyState) -> Self {
        Self { kid, public: STANDARD.encode(key.as_bytes()), state }
    }

    /// Returns the key; `None` if it is malformed.
    pub(crate) fn verifying_key(&self) -> Option<VerifyingKey> {
        let bytes: [u8; 32] = STANDARD.decode(&self.public).ok()?.try_into().ok()?;
        VerifyingKey::from_bytes(&bytes).ok()
    }
}

/// All task-signing keys and trusted authorities, at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningKeySet {
    /// Increases with every change.
    pub version: u64,
    /// Keys with their states.
    pub keys: Vec<TaskKey>,
    /// After this time the agent accepts no task until it receives a renewed set.
    pub expires_at: Timestamp,
    /// Authorities to trust from now on, in PEM, the issuing one first. Empty if there was only ever one, and in sets older than this
    /// field: then the agent keeps the authorities of the set in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<String>,
}

/// A key set with a signature of each authority that may be the only one an agent trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedKeySet {
    /// JSON of the [`SigningKeySet`], exactly as signed.
    pub set: String,
    /// Signature of the authority (ECDSA P-256 with SHA-256, ASN.1) over the DSSE pre-authentication encoding of the set, in base64.
    pub signature: String,
    /// The same by the previously active authority, for agents that were offline during the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_predecessor: Option<String>,
}

/// Why a key set was refused. The set in use stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The data is not a key set.
    #[error("the signing-key set is malformed: {0}")]
    Malformed(String),
    /// No trusted authority signed the set.
    #[error("no trusted authority signed the signing-key set")]
    Signature,
    /// The set is older than the one in use.
    #[error("the signing-key set has version {offered}, but version {held} is in use")]
    Older {
        /// Version of the offered set.
        offered: u64,
        /// Version of the set in use.
        held: u64,
    },
    /// The set has the version of the set in use, but different keys or authorities.
    #[error("the signing-key set differs from the one in use, which has the same version {0}")]
    Changed(u64),
    /// The set has expired.
    #[error("the signing-key set expired at {0}")]
    Expired(Timestamp),
}

impl SigningKeySet {
    /// Validity of a set after it is signed.
    pub const LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);
    /// Age at which a set is signed again and redistributed.
    pub const RENEWED_AFTER: Duration = Duration::from_secs(10 * 24 * 3_600);

    /// Returns true if the set has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }

    /// Returns true if the set is due to be signed again with a later expiry.
    pub fn needs_renewal(&self, now: Timestamp) -> bool {
        self.expires_at <= now.plus(Self::LIFE - Self::RENEWED_AFTER)
    }

    /// Returns the key with this id if tasks signed with it are accepted.
    pub fn accepted(&self, kid: &str) -> Option<VerifyingKey> {
        self.keys.iter().find(|key| key.kid == kid && key.state.is_accepted())?.verifying_key()
    }

    /// Parses the certificates of the set's authorities.
    pub fn authority_certificates(&self) -> Result<Vec<CertificateDer<'static>>, KeySetError> {
        certificates_of_pem(&self.authorities.concat()).map_err(|error| KeySetError::Malformed(error.to_string()))
    }

    /// Signs the set with the authority's key.
    pub fn sign(&self, authority: &Authority) -> Result<SignedKeySet, AuthorityError> {
        let set = serde_json::to_string(self).map_err(|error| AuthorityError::Material(error.to_string()))?;
        Ok(SignedKeySet { signature: signature(&set, authority)?, set, by_predecessor: None })
    }
}

fn signature(set: &str, authority: &Authority) -> Result<String, AuthorityError> {
    Ok(STANDARD.encode(authority.sign(&pre_authentication(SIGNED_AS, set.as_bytes()))?))
}

impl SignedKeySet {
    /// Adds the signature of the previously active authority.
    pub fn signed_by_predecessor(self, authority: &Authority) -> Result<Self, AuthorityError> {
        Ok(Self { by_predecessor: Some(signature(&self.set, authority)?), ..self })
    }

    /// Returns the set if one of `authorities` signed it, it has not expired at `now`, and its version is not lower than that of `held`.
    /// With the same version, keys and authorities must be equal.
    pub fn verify(
        &self,
        authorities: &[CertificateDer<'_>],
        held: Option<&SigningKeySet>,
        now: Timestamp,
    ) -> Result<SigningKeySet, KeySetError> {
        let set = self.open(authorities)?;
        set.authority_certificates()?;
        match held {
            Some(held) if set.version < held.version => {
                Err(KeySetError::Older { offered: set.version, held: held.version })
            }
            Some(held)
                if set.version == held.version && (&set.keys, &set.authorities) != (&held.keys, &held.authorities) =>
            {
                Err(KeySetError::Changed(set.version))
            }
            _ if set.is_expired(now) => Err(KeySetError::Expired(set.expires_at)),
            _ => Ok(set),
        }
    }

    /// Returns the set if one of `authorities` signed it, regardless of expiry and version. Used for the stored set.
    pub fn open(&self, authorities: &[CertificateDer<'_>]) -> Result<SigningKeySet, KeySetError> {
        for signature in std::iter::once(&self.signature).chain(&self.by_predecessor) {
            let signature = STANDARD.decode(signature).map_err(|error| KeySetError::Malformed(error.to_string()))?;
            for authority in authorities {
                if self.is_signed(authority, &signature)? {
                    return serde_json::from_str(&self.set).map_err(|error| KeySetError::Malformed(error.to_string()));
                }
            }
        }
        Err(KeySetError::Signature)
    }

    fn is_signed(&self, authority: &CertificateDer<'_>, signature: &[u8]) -> Result<bool, KeySetError> {
        let (_, certificate) = x509_parser::parse_x509_certificate(authority)
            .map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let point = &certificate.public_key().subject_public_key.data;
        let key = aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1, point);
        Ok(key.verify(&pre_authentication(SIGNED_AS, self.set.as_bytes()), signature).is_ok())
    }
}

#[cfg(test)]
mod tests;
