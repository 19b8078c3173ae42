//! What an import may rest on: a release's sum file says what its files are, and here is decided whether the sum file is believed.
//!
//! Guarantees: neither the server that hands a release out nor the operator that imports it is enough. Either the request names the digest of the sum
//! file, or a key that the control plane's settings trust has signed it; without one of them only a setting lets a release in.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_model::VerifiedBy;
use minisign_verify::{Error, PublicKey, Signature};

use crate::{digest, error::ArtifactError};

/// Longest signature file; minisign's have 300 bytes.
pub(crate) const SIGNATURE_BYTES_MAX: u64 = 4_096;
/// Where a key's id lies in its public key: behind the two bytes of the algorithm.
const KEY_ID: std::ops::Range<usize> = 2..10;

/// A minisign public key that releases may be signed with.
#[derive(Clone, PartialEq)]
pub struct TrustedKey {
    id: String,
    key: PublicKey,
}

/// A text that is no public key of minisign's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no public key of minisign's: give the second line of its .pub file, which begins with RW")]
pub struct NoPublicKey;

impl FromStr for TrustedKey {
    type Err = NoPublicKey;

    fn from_str(text: &str) -> Result<Self, NoPublicKey> {
        let text = text.trim();
        let key = PublicKey::from_base64(text).map_err(|_| NoPublicKey)?;
        let bytes = STANDARD.decode(text).map_err(|_| NoPublicKey)?;
        // minisign prints the id as one number, the last byte first.
        let id = bytes.get(KEY_ID).ok_or(NoPublicKey)?.iter().rev().map(|byte| format!("{byte:02X}")).collect();
        Ok(Self { id, key })
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustedKey({})", self.id)
    }
}

/// What the control plane's settings accept.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Keys whose signatures count.
    pub trusted_keys: Vec<TrustedKey>,
    /// Whether a release that nothing verifies is taken.
    pub allow_unverified: bool,
}

/// What a request brings along to verify its release.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof<'a> {
    /// SHA-256 of the sum file, 64 lower-case hex digits.
    pub sums_sha256: Option<&'a str>,
    /// The text of a signature file over the sum file.
    pub signature: Option<&'a str>,
}

impl Proof<'_> {
    /// Whether a signature beside the sum file counts too.
    pub(crate) fn is_empty(&self) -> bool {
        self.sums_sha256.is_none() && self.signature.is_none()
    }
}

impl Verification {
    /// What verifies a sum file. `beside` is the signature file that lies with it, which counts where the request brings nothing along.
    pub(crate) fn verify(
        &self,
        name: &str,
        sums: &[u8],
        proof: &Proof<'_>,
        beside: Option<&str>,
    ) -> Result<VerifiedBy, ArtifactError> {
        if let Some(expected) = proof.sums_sha256 {
            let found = digest::of_bytes(sums);
            if found == expected {
                return Ok(VerifiedBy::SumsSha256(found));
            }
            return Err(ArtifactError::DigestMismatch { name: name.to_owned(), found, expected: expected.to_owned() });
        }
        let unverified = |why: &'static str| ArtifactError::Unverified { sums: name.to_owned(), why };
        match proof.signature.or(beside).map(|text| self.signer(sums, text)) {
            Some(Signer::Trusted(id)) => Ok(VerifiedBy::Key(id)),
            Some(Signer::Forged) => Err(unverified("its signature does not fit")),
            // A signature that the request itself brings along is meant to count.
            Some(Signer::Unknown) if proof.signature.is_some() => Err(unverified("no trusted key has signed it")),
            Some(Signer::Unknown) | None if self.allow_unverified => Ok(VerifiedBy::Nothing),
            Some(Signer::Unknown) => Err(unverified("no trusted key has signed it")),
            None => Err(unverified("it comes without a digest or signature")),
        }
    }

    fn signer(&self, sums: &[u8], text: &str) -> Signer {
        let Ok(signature) = Signature::decode(text) else { return Signer::Forged };
        for TrustedKey { id, key } in &self.trusted_keys {
            match key.verify(sums, &signature, false) {
                Ok(()) => return Signer::Trusted(id.clone()),
                Err(Error::UnexpectedKeyId) => {}
                Err(_) => return Signer::Forged,
            }
        }
        Signer::Unknown
    }
}

/// Who signed a sum file.
enum Signer {
    /// The trusted key of that id.
    Trusted(String),
    /// A key that is not trusted, or claims to be none that is.
    Unknown,
    /// Nobody: the text is no signature, or it is one of other bytes.
    Forged,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key pair with its public key as settings have it.
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
    fn sum_file_is_believed_by_its_digest_or_by_a_trusted_signature() {
        let ((pair, public), (other, _)) = (key_pair(), key_pair());
        let policy = Verification { trusted_keys: vec![public.parse().unwrap()], allow_unverified: false };
        let sha256 = crate::digest::of_text("sums");
        let by_digest = Proof { sums_sha256: Some(&sha256), signature: None };
        assert_eq!(policy.verify("s", SUMS, &by_digest, None).unwrap(), VerifiedBy::SumsSha256(sha256.clone()));
        let (good, strange) = (sign(&pair, SUMS), sign(&other, SUMS));
        let by_key = VerifiedBy::Key(policy.trusted_keys[0].id.clone());
        assert_eq!(policy.verify("s", SUMS, &Proof::default(), Some(&good)).unwrap(), by_key);
        let brought = Proof { signature: Some(&good), ..Proof::default() };
        assert_eq!(policy.verify("s", SUMS, &brought, Some(&strange)).unwrap(), by_key, "the request's counts");
        assert_eq!(
            by_key.to_string(),
            format!("key:{}", pair.pk.keynum().iter().rev().map(|byte| format!("{byte:02X}")).collect::<String>())
        );
    }

    #[test]
    fn sum_file_that_nothing_confirms_is_refused_unless_a_setting_allows_it() {
        let ((pair, public), (other, _)) = (key_pair(), key_pair());
        let strict = Verification { trusted_keys: vec![public.parse().unwrap()], allow_unverified: false };
        let lax = Verification { allow_unverified: true, ..strict.clone() };
        let (other_bytes, strange) = (sign(&pair, b"other"), sign(&other, SUMS));
        for (beside, is_allowed) in
            [(None, true), (Some(&strange), true), (Some(&other_bytes), false), (Some(&"x".to_owned()), false)]
        {
            let beside = beside.map(String::as_str);
            let refused = strict.verify("s", SUMS, &Proof::default(), beside);
            assert!(matches!(refused, Err(ArtifactError::Unverified { .. })), "{refused:?}");
            let lax = lax.verify("s", SUMS, &Proof::default(), beside);
            assert_eq!(lax.is_ok_and(|by| by == VerifiedBy::Nothing), is_allowed, "{beside:?}");
        }
        let brought = Proof { signature: Some(&strange), ..Proof::default() };
        assert!(lax.verify("s", SUMS, &brought, None).is_err(), "a signature that is brought along must count");
        let sha256 = crate::digest::of_text("other");
        let named = Proof { sums_sha256: Some(&sha256), ..Proof::default() };
        assert!(matches!(lax.verify("s", SUMS, &named, None), Err(ArtifactError::DigestMismatch { .. })));
    }

    #[test]
    fn only_a_public_key_is_a_trusted_key() {
        for bad in ["", "RWQ", "untrusted comment: x"] {
            assert_eq!(bad.parse::<TrustedKey>(), Err(NoPublicKey), "{bad}");
        }
    }
}
