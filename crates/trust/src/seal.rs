//! Sealing of secrets at rest: AES-256-GCM under one key that the store never sees, bound to what each secret belongs to. A second key, derived from
//! that one, authenticates records that are no secret and must come from the platform alone.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    hkdf, hmac,
};
use zeroize::Zeroizing;

/// Bytes of the nonce that stands before the sealed bytes.
const NONCE_BYTES: usize = 12;
/// What the derived key is for: another use gets another key.
const RECORDS: &[u8] = b"gpuaas authentication of records v1";

/// Why something could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key has the wrong length.
    #[error("the sealing key must have 32 bytes")]
    Key,
    /// Sealing failed.
    #[error("the secret could not be sealed")]
    Seal,
    /// Another key sealed it, or for something else, or it was changed.
    #[error("the secret cannot be opened with this sealing key")]
    Open,
}

/// Seals and opens.
pub struct SealingKey {
    key: RandomizedNonceKey,
    records: RecordKey,
}

/// Tells records that the platform wrote from others: HMAC-SHA256 under a key that is derived from the sealing key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordKey(hmac::Key);

impl RecordKey {
    /// The code of a record of that kind, 32 bytes. Fields that are cut elsewhere have another code.
    pub fn code(&self, kind: &str, fields: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.0);
        each(kind, fields, |bytes| context.update(bytes));
        context.sign().as_ref().to_vec()
    }

    /// Whether `code` is that of the record, told in constant time.
    pub fn is_genuine(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> bool {
        let mut message = Vec::new();
        each(kind, fields, |bytes| message.extend_from_slice(bytes));
        hmac::verify(&self.0, &message, code).is_ok()
    }
}

/// The kind and every field, each behind its length.
fn each(kind: &str, fields: &[&[u8]], mut take: impl FnMut(&[u8])) {
    for bytes in std::iter::once(kind.as_bytes()).chain(fields.iter().copied()) {
        take(&(bytes.len() as u64).to_be_bytes());
        take(bytes);
    }
}

impl SealingKey {
    /// The key of these 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SealError> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, bytes).map_err(|_| SealError::Key)?;
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(bytes);
        let records = derived.expand(&[RECORDS], hmac::HMAC_SHA256).map_err(|_| SealError::Key)?;
        Ok(Self { key, records: RecordKey(records.into()) })
    }

    /// The key that authenticates records.
    pub fn records(&self) -> &RecordKey {
        &self.records
    }

    /// Seals `plain` so that it opens only for the same `owner`.
    pub fn seal(&self, owner: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut bytes = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(owner), &mut bytes).map_err(|_| SealError::Seal)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut bytes);
        Ok(sealed)
    }

    /// Opens what was sealed for `owner`.
    pub fn open(&self, owner: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (nonce, body) = sealed.split_at_checked(NONCE_BYTES).ok_or(SealError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Open)?;
        let mut bytes = Zeroizing::new(body.to_vec());
        let plain = self.key.open_in_place(nonce, Aad::from(owner), &mut bytes).map_err(|_| SealError::Open)?.len();
        bytes.truncate(plain);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_owner_under_its_key_and_unchanged_only() {
        let key = SealingKey::new(&[1; 32]).unwrap();
        let sealed = key.seal(b"secret-1", b"hello").unwrap();
        assert_eq!(&**key.open(b"secret-1", &sealed).unwrap(), b"hello");
        assert_eq!(key.open(b"secret-2", &sealed), Err(SealError::Open));
        assert_eq!(SealingKey::new(&[2; 32]).unwrap().open(b"secret-1", &sealed), Err(SealError::Open));
        for at in 0..sealed.len() {
            let mut spoiled = sealed.clone();
            spoiled[at] ^= 1;
            assert_eq!(key.open(b"secret-1", &spoiled), Err(SealError::Open));
        }
        assert_eq!(key.open(b"secret-1", b"short"), Err(SealError::Open));
        assert!(SealingKey::new(b"short").is_err());
    }

    #[test]
    fn a_record_is_genuine_under_its_key_as_its_kind_and_unchanged_only() {
        let key = SealingKey::new(&[1; 32]).unwrap();
        let code = key.records().code("token", &[b"one", b"two"]);
        assert!(key.records().is_genuine("token", &[b"one", b"two"], &code));
        assert!(!key.records().is_genuine("enrollment", &[b"one", b"two"], &code));
        assert!(!key.records().is_genuine("token", &[b"onet", b"wo"], &code), "fields are not run together");
        assert!(!key.records().is_genuine("token", &[b"one", b"two"], &[]));
        assert!(!SealingKey::new(&[2; 32]).unwrap().records().is_genuine("token", &[b"one", b"two"], &code));
    }

    #[test]
    fn the_same_secret_never_looks_the_same() {
        let key = SealingKey::new(&[1; 32]).unwrap();
        assert_ne!(key.seal(b"a", b"hello").unwrap(), key.seal(b"a", b"hello").unwrap());
    }
}
