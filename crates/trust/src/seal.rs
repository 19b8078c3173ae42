//! Encryption of secrets at rest: AES-256-GCM with a sealing key that is never in the store, bound to the owner of each secret. A key
//! derived from the sealing key authenticates records that are not secret but must be written only by the platform.
//!
//! During a rotation of the sealing key a process holds both keys ([`SealingKeys`]): both open and verify, only the active one seals.

use std::{
    borrow::Cow,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    hkdf, hmac,
};
use zeroize::Zeroizing;

/// Length of the nonce, which precedes the ciphertext.
const NONCE_BYTES: usize = 12;
/// HKDF info of the record key; every use has a separate derived key.
const RECORDS: &[u8] = b"gpuaas authentication of records v1";
/// HKDF info of the public id.
const ID: &[u8] = b"gpuaas id of sealing key v1";
/// Length of an id in bytes: enough to distinguish the keys of one control plane, and too short to be mistaken for a key.
const ID_BYTES: usize = 8;

/// Why data could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key has the wrong length.
    #[error("the sealing key must have 32 bytes")]
    Key,
    /// Sealing failed.
    #[error("the secret could not be sealed")]
    Seal,
    /// Another key or another owner was used, or the data was changed.
    #[error("the secret cannot be opened with this sealing key")]
    Open,
}

/// A key that seals and opens secrets.
pub struct SealingKey {
    id: String,
    key: RandomizedNonceKey,
    records: RecordKey,
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealingKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Output length of HKDF for an id.
struct IdLength;

impl hkdf::KeyType for IdLength {
    fn len(&self) -> usize {
        ID_BYTES
    }
}

/// Authenticates records of the platform with HMAC-SHA256 and a key derived from the sealing key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordKey(hmac::Key);

impl RecordKey {
    /// Returns the 32-byte code of a record of this kind. Each field is length-prefixed, so moving bytes between fields changes the code.
    pub fn code(&self, kind: &str, fields: &[&[u8]]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.0);
        for_each_field(kind, fields, |bytes| context.update(bytes));
        context.sign().as_ref().to_vec()
    }

    /// Returns true if `code` belongs to the record; compares in constant time.
    pub fn is_valid_code(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> bool {
        let mut message = Vec::new();
        for_each_field(kind, fields, |bytes| message.extend_from_slice(bytes));
        hmac::verify(&self.0, &message, code).is_ok()
    }
}

/// Passes the kind and every field to `take`, each after its length.
fn for_each_field(kind: &str, fields: &[&[u8]], mut take: impl FnMut(&[u8])) {
    for bytes in std::iter::once(kind.as_bytes()).chain(fields.iter().copied()) {
        take(&(bytes.len() as u64).to_be_bytes());
        take(bytes);
    }
}

impl SealingKey {
    /// Creates the key from 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SealError> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, bytes).map_err(|_| SealError::Key)?;
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(bytes);
        let records = derived.expand(&[RECORDS], hmac::HMAC_SHA256).map_err(|_| SealError::Key)?;
        let mut id = [0; ID_BYTES];
        derived.expand(&[ID], IdLength).and_then(|id_of| id_of.fill(&mut id)).map_err(|_| SealError::Key)?;
        Ok(Self { id: hex::encode(id), key, records: RecordKey(records.into()) })
    }

    /// Returns the public id, 16 hex digits. It is derived from the key and does not help to find the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key that authenticates records.
    pub fn records(&self) -> &RecordKey {
        &self.records
    }

    /// Seals `plain`; only the same `owner` can open it.
    pub fn seal(&self, owner: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut bytes = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(owner), &mut bytes).map_err(|_| SealError::Seal)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut bytes);
        Ok(sealed)
    }

    /// Opens data that was sealed for `owner`.
    pub fn open(&self, owner: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (nonce, body) = sealed.split_at_checked(NONCE_BYTES).ok_or(SealError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Open)?;
        let mut bytes = Zeroizing::new(body.to_vec());
        let plain = self.key.open_in_place(nonce, Aad::from(owner), &mut bytes).map_err(|_| SealError::Open)?.len();
        bytes.truncate(plain);
        Ok(bytes)
    }
}

/// The sealing keys of a process: the active key and, during a rotation, its successor or its predecessor.
///
/// Data opens and records verify with whichever of these keys was used. All replicas change over together: a row in the store determines
/// the active key.
#[derive(Debug)]
pub struct SealingKeys(RwLock<KeyRing>);

#[derive(Debug)]
struct KeyRing {
    active: Arc<SealingKey>,
    next: Option<Arc<SealingKey>>,
    previous: Option<Arc<SealingKey>>,
}

impl KeyRing {
    fn all(&self) -> impl Iterator<Item = &Arc<SealingKey>> {
        std::iter::once(&self.active).chain(&self.next).chain(&self.previous)
    }

    /// Returns the key with this id, or the active key if `id` is `None`.
    fn find(&self, id: Option<&str>) -> Option<&Arc<SealingKey>> {
        self.all().find(|key| id.is_none_or(|id| key.id == id))
    }
}

impl From<SealingKey> for SealingKeys {
    fn from(active: SealingKey) -> Self {
        Self(RwLock::new(KeyRing { active: Arc::new(active), next: None, previous: None }))
    }
}

impl From<SealingKey> for Arc<SealingKeys> {
    fn from(active: SealingKey) -> Self {
        Self::new(active.into())
    }
}

impl SealingKeys {
    /// Adds the next key and replaces an earlier next key. Returns false if the key is already held.
    pub fn set_next(&self, key: SealingKey) -> bool {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = held.find(Some(&key.id)).is_none();
        if is_new {
            held.next = Some(Arc::new(key));
        }
        is_new
    }

    /// Activates the key with this id; the previously active key still opens and verifies. Returns false if the key is not held.
    pub fn activate(&self, id: &str) -> bool {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(key) = held.find(Some(id)).cloned() else { return false };
        if key.id != held.active.id {
            held.next = held.next.take().filter(|next| next.id != id);
            held.previous = Some(std::mem::replace(&mut held.active, key));
        }
        true
    }

    /// Drops the previously active key. Data sealed only with it is lost.
    pub fn drop_previous(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).previous = None;
    }

    /// Returns the id of the active key.
    pub fn active(&self) -> String {
        self.with_keys(|held| held.active.id.clone())
    }

    /// Returns the id of the next key, if one is held.
    pub fn next(&self) -> Option<String> {
        self.with_keys(|held| held.next.as_ref().map(|key| key.id.clone()))
    }

    /// Returns true if a previously active key is held.
    pub fn has_previous(&self) -> bool {
        self.with_keys(|held| held.previous.is_some())
    }

    /// Returns true if the key with this id is held.
    pub fn holds(&self, id: &str) -> bool {
        self.with_keys(|held| held.find(Some(id)).is_some())
    }

    /// Seals `plain` with the active key; only the same `owner` can open it.
    pub fn seal(&self, owner: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        self.with_keys(|held| held.active.clone()).seal(owner, plain)
    }

    /// Opens data that any of the keys sealed for `owner`.
    pub fn open(&self, owner: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let keys: Vec<_> = self.with_keys(|held| held.all().cloned().collect());
        keys.iter().find_map(|key| key.open(owner, sealed).ok()).ok_or(SealError::Open)
    }

    /// Returns the data sealed with the key of this id, or with the active key; borrowed if it already is. Returns `None` if that key is
    /// not held, or if no held key opens the data for `owner`.
    pub fn reseal<'a>(&self, id: Option<&str>, owner: &[u8], sealed: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let key = self.with_keys(|held| held.find(id).cloned())?;
        if key.open(owner, sealed).is_ok() {
            return Some(Cow::Borrowed(sealed));
        }
        let plain = self.open(owner, sealed).ok()?;
        key.seal(owner, &plain).ok().map(Cow::Owned)
    }

    /// Returns the code of a record with the key of this id, or with the active key; `None` if the key is not held.
    pub fn code(&self, id: Option<&str>, kind: &str, fields: &[&[u8]]) -> Option<Vec<u8>> {
        self.with_keys(|held| held.find(id).cloned()).map(|key| key.records.code(kind, fields))
    }

    /// Returns the id of the key that produced the record's code; `None` if no held key did.
    pub fn proven_by(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> Option<String> {
        let keys: Vec<_> = self.with_keys(|held| held.all().cloned().collect());
        keys.iter().find(|key| key.records.is_valid_code(kind, fields, code)).map(|key| key.id.clone())
    }

    fn with_keys<T>(&self, look: impl FnOnce(&KeyRing) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
