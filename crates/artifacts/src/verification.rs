//! Verifies a release's checksum file, which in turn lists the digests of the release's files.
//!
//! Guarantee: a checksum file is accepted if the request names its digest, or if a key that the control plane's settings trust has signed it.
//! Without either, it is accepted only if a setting allows unverified releases. The server's word alone is not enough.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_model::VerifiedBy;
use minisign_verify::{Error, PublicKey, Signature};

use crate::{digest, error::ArtifactError};

/// Longest signature file, in bytes; minisign's have about 300.
pub(crate) const SIGNATURE_BYTES_MAX: u64 = 4_096;
/// Position of the key id in a public key: after the two bytes of the algorithm.
const KEY_ID: std::ops::Range<usize> = 2..10;

/// A minisign public key whose signatures on releases are accepted.
#[derive(Clone, PartialEq)]
pub struct TrustedKey {
    id: String,
    key: PublicKey,
}

/// The text is not a minisign public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a minisign public key: give the second line of the .pub file, which begins with RW")]
pub struct PublicKeyError;

impl FromStr for TrustedKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let text = text.trim();
        let key = PublicKey::from_base64(text).map_err(|_| PublicKeyError)?;
        let bytes = STANDARD.decode(text).map_err(|_| PublicKeyError)?;
        // minisign prints the id as a little-endian number.
        let id = bytes.get(KEY_ID).ok_or(PublicKeyError)?.iter().rev().map(|byte| format!("{byte:02X}")).collect();
        Ok(Self { id, key })
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustedKey({})", self.id)
    }
}

/// The control plane's settings for verifying releases.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Keys whose signatures are accepted.
    pub trusted_keys: Vec<TrustedKey>,
    /// Whether a release without a digest or trusted signature is accepted.
    pub allow_unverified: bool,
}

/// A request's proof of a release's checksum file. If both fields are set, only the digest is checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof<'a> {
    /// SHA-256 of the checksum file, 64 lower-case hex digits.
    pub sums_sha256: Option<&'a str>,
    /// Text of a minisign signature file for the checksum file.
    pub signature: Option<&'a str>,
}

impl Proof<'_> {
    /// Returns whether the request has no proof, so that the signature file next to the checksum file is used.
    pub(crate) fn is_empty(&self) -> bool {
        self.sums_sha256.is_none() && self.signature.is_none()
    }
}

impl Verification {
    /// Verifies a checksum file. `adjacent` is the text of the signature file next to it, used if the request has no proof.
    pub(crate) fn verify(
        &self,
        name: &str,
        sums: &[u8],
        proof: &Proof<'_>,
        adjacent: Option<&str>,
    ) -> Result<VerifiedBy, ArtifactError> {
        if let Some(expected) = proof.sums_sha256 {
            let found = digest::of_bytes(sums);
            if found == expected {
                return Ok(VerifiedBy::SumsSha256(found));
            }
            return Err(ArtifactError::DigestMismatch { name: name.to_owned(), found, expected: expected.to_owned() });
        }
        let unverified = |why: &'static str| ArtifactError::Unverified { sums: name.to_owned(), why };
        match proof.signature.or(adjacent).map(|text| self.signer(sums, text)) {
            Some(Signer::Trusted(id)) => Ok(VerifiedBy::Key(id)),
            Some(Signer::Invalid) => Err(unverified("its signature is invalid")),
            // A signature in the request must be by a trusted key, even if unverified releases are allowed.
            Some(Signer::Unknown) if proof.signature.is_some() => Err(unverified("no trusted key has signed it")),
            Some(Signer::Unknown) | None if self.allow_unverified => Ok(VerifiedBy::Nothing),
            Some(Signer::Unknown) => Err(unverified("no trusted key has signed it")),
            None => Err(unverified("it has neither a digest nor a signature")),
        }
    }

    fn signer(&self, sums: &[u8], text: &str) -> Signer {
        let Ok(signature) = Signature::decode(text) else { return Signer::Invalid };
        for TrustedKey { id, key } in &self.trusted_keys {
            match key.verify(sums, &signature, false) {
                Ok(()) => return Signer::Trusted(id.clone()),
                Err(Error::UnexpectedKeyId) => {}
                Err(_) => return Signer::Invalid,
            }
        }
        Signer::Unknown
    }
}

/// Result of checking a signature.
enum Signer {
    /// Valid, by the trusted key with this id.
    Trusted(String),
    /// The signature names a key id that is not trusted.
    Unknown,
    /// Invalid: the text is no signature, or the signature does not match the bytes.
    Invalid,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Generates a key pair; returns it with its public key in the format of the settings.
    pub(crate) fn key_pair() -> (minisign::KeyPair, String) {
        let pair = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
        let text = pair.pk.to_base64();
        (pair, text)
    }

    pub(crate) fn sign(pair: &minisign::KeyPair, bytes: &[u8]) -> String {
        minisign::sign(None, &pair.sk, std::io::Cursor::new(bytes), None, None).unwrap().into_string()
    }

    const SUMS: &[u8] = b"sums";

    #[test]
    fn sum_file_is_verified_by_its_digest_or_by_a_trusted_signature() {
        let ((pair, public), (other, _)) = (key_pair(), key_pair());
        let policy = Verification { trusted_keys: vec![public.parse().unwrap()], allow_unverified: false };
        let sha256 = crate::digest::of_text("sums");
        let by_digest = Proof { sums_sha256: Some(&sha256), signature: None };
        assert_eq!(policy.verify("s", SUMS, &by_digest, None).unwrap(), VerifiedBy::SumsSha256(sha256.clone()));
        let (good, untrusted) = (sign(&pair, SUMS), sign(&other, SUMS));
        let by_key = VerifiedBy::Key(policy.trusted_keys[0].id.clone());
        assert_eq!(policy.verify("s", SUMS, &Proof::default(), Some(&good)).unwrap(), by_key);
        let in_request = Proof { signature: Some(&good), ..Proof::default() };
        assert_eq!(policy.verify("s", SUMS, &in_request, Some(&untrusted)).unwrap(), by_key, "the request's counts");
        assert_eq!(
            by_key.to_string(),
            format!("key:{}", pair.pk.keynum().iter().rev().map(|byte| format!("{byte:02X}")).collect::<String>())
        );
    }

    #[test]
    fn unverified_sum_file_is_refused_unless_a_setting_allows_it() {
        let ((pair, public), (other, _)) = (key_pair(), key_pair());
        let strict = Verification { trusted_keys: vec![public.parse().unwrap()], allow_unverified: false };
        let lax = Verification { allow_unverified: true, ..strict.clone() };
        let (other_bytes, untrusted) = (sign(&pair, b"other"), sign(&other, SUMS));
        for (adjacent, is_allowed) in
            [(None, true), (Some(&untrusted), true), (Some(&other_bytes), false), (Some(&"x".to_owned()), false)]
        {
            let adjacent = adjacent.map(String::as_str);
            let refused = strict.verify("s", SUMS, &Proof::default(), adjacent);
            assert!(matches!(refused, Err(ArtifactError::Unverified { .. })), "{refused:?}");
            let lax = lax.verify("s", SUMS, &Proof::default(), adjacent);
            assert_eq!(lax.is_ok_and(|by| by == VerifiedBy::Nothing), is_allowed, "{adjacent:?}");
        }
        let brought = Proof { signature: Some(&untrusted), ..Proof::default() };
        assert!(lax.verify("s", SUMS, &brought, None).is_err(), "a signature in the request must be trusted");
        let sha256 = crate::digest::of_text("other");
        let named = Proof { sums_sha256: Some(&sha256), ..Proof::default() };
        assert!(matches!(lax.verify("s", SUMS, &named, None), Err(ArtifactError::DigestMismatch { .. })));
    }

    #[test]
    fn text_that_is_no_public_key_is_refused() {
        for bad in ["", "RWQ", "untrusted comment: x"] {
            assert_eq!(bad.parse::<TrustedKey>(), Err(PublicKeyError), "{bad}");
        }
    }
}
