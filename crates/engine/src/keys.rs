//! The control plane's own keys, which sign tasks and seal secrets. No code in this module prints a key.
//!
//! Rows name the key that signs, so that every replica changes over with the same commit. [`crate::key_rotation`] rotates task-signing
//! keys, [`crate::authority_rotation`] authorities.

use std::{
    borrow::Cow,
    sync::{Arc, PoisonError, RwLock},
};

use gpuaas_model::{Entropy, KeyState, SecretId, Timestamp};
use gpuaas_store::{
    AuditSealRecord, Reader, RecordProof, SigningKeyRecord, StoreError, StoredAuthority, StoredSigningKey,
};
use gpuaas_trust::{
    AuditSealStatement, Authority, SealError, SealingKeys, SignError, SigningKeySet, TaskKey, TaskSigner,
    TaskStatement, TokenKey,
};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::authorities::Authorities;

/// The keys in use.
pub struct Keys {
    control_plane: String,
    sealing: Arc<SealingKeys>,
    tokens: TokenKey,
    ring: RwLock<Arc<KeyRing>>,
    /// Follows the ring, for tasks that react to a change of authorities.
    authorities: watch::Sender<Arc<Authorities>>,
}

/// The task-signing keys and the authorities, at one version of their set.
pub struct KeyRing {
    version: u64,
    accepted: Vec<TaskKey>,
    signer: Option<TaskSigner>,
    authorities: Arc<Authorities>,
}

/// A signed task, ready to be recorded and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTask {
    /// The envelope as it is sent, JSON.
    pub envelope: String,
    /// SHA-256 digest of the envelope's payload, 64 hex digits.
    pub sha256: String,
    /// The id of the key that signed it.
    pub key_id: String,
}

/// A key set with the authority's signature, in the form that agents accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedSet {
    /// The version of the set.
    pub version: u64,
    /// The signed set, JSON.
    pub text: String,
}

/// The reasons for which a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The rows could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A seed could not be unsealed, or the set could not be signed.
    #[error("the keys cannot be used: {0}")]
    Unusable(String),
    /// No row names an active signing key.
    #[error("no task-signing key is active")]
    NoneActive,
    /// The task could not be signed.
    #[error("the task could not be signed: {0}")]
    Sign(#[from] SignError),
}

impl Keys {
    /// Creates the keys of the control plane with the given id. `authority` is in effect as long as no row names another; rows name the
    /// signing key.
    pub fn new(
        control_plane: String,
        authority: Authority,
        sealing: impl Into<Arc<SealingKeys>>,
        tokens: TokenKey,
    ) -> Self {
        let authorities = Arc::new(Authorities::first(authority));
        let ring = KeyRing { version: 0, accepted: Vec::new(), signer: None, authorities: authorities.clone() };
        Self {
            control_plane,
            sealing: sealing.into(),
            tokens,
            ring: RwLock::new(Arc::new(ring)),
            authorities: watch::Sender::new(authorities),
        }
    }

    /// The authorities as of the last read of the rows.
    pub fn authorities(&self) -> Arc<Authorities> {
        self.known_ring().authorities.clone()
    }

    /// The authority that issued certificates as of the last read of the rows.
    pub fn authority(&self) -> Arc<Authority> {
        self.authorities().active().clone()
    }

    /// Subscribes to changes of the authorities.
    pub fn watch_authorities(&self) -> watch::Receiver<Arc<Authorities>> {
        self.authorities.subscribe()
    }

    /// The keys that seal values in the store.
    pub fn sealing(&self) -> &SealingKeys {
        &self.sealing
    }

    /// The key that issues tokens and recognizes genuine ones.
    pub fn tokens(&self) -> &TokenKey {
        &self.tokens
    }

    /// The proof that distinguishes the platform's own records from forged ones.
    pub fn proof(&self) -> Arc<dyn RecordProof> {
        record_proof(self.sealing.clone())
    }

    /// The id of this control plane, as in node certificates and tasks.
    pub fn control_plane(&self) -> &str {
        &self.control_plane
    }

    /// Generates a task-signing key in the given state, with its seed sealed, as a row to be written.
    pub fn generate_signing_key(
        &self,
        state: KeyState,
        version: u64,
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<StoredSigningKey, SealError> {
        self.stored_signing_key(&TaskSigner::generate(entropy), state, version, now)
    }

    /// Creates the row of a signing key, with its seed sealed.
    pub fn stored_signing_key(
        &self,
        signer: &TaskSigner,
        state: KeyState,
        version: u64,
        now: Timestamp,
    ) -> Result<StoredSigningKey, SealError> {
        let TaskKey { kid, public, state } = signer.public(state);
        let seed = self.sealing.seal(&StoredSigningKey::seal_owner(&kid), &*signer.to_seed())?;
        let key = SigningKeyRecord {
            key_id: kid,
            public,
            state,
            version,
            created_at: now,
            changed_at: now,
            correlation: None,
        };
        Ok(StoredSigningKey { key, seed })
    }

    /// The keys according to the rows at this moment.
    pub async fn ring(&self, reader: &mut Reader) -> Result<Arc<KeyRing>, KeysError> {
        let version = reader.key_set_version().await?;
        let known = self.known_ring();
        if known.version == version && version > 0 {
            return Ok(known);
        }
        self.check_sealing_keys(reader).await?;
        let authorities = self.open_authorities(reader.authorities().await?)?;
        let ring = Arc::new(self.open_ring(version, reader.signing_keys().await?, authorities)?);
        let mut known = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        // A concurrent reader may have stored a newer ring.
        if known.version < version {
            known.clone_from(&ring);
            self.authorities.send_if_modified(|known| {
                let is_other = !Arc::ptr_eq(known, &ring.authorities);
                known.clone_from(&ring.authorities);
                is_other
            });
        }
        drop(known);
        Ok(ring)
    }

    /// Fails if genuine rows may be under a sealing key that this replica lacks: they would look forged, and the others would look
    /// complete.
    pub(crate) async fn check_sealing_keys(&self, reader: &mut Reader) -> Result<(), StoreError> {
        let Some(named) = reader.sealing().await? else { return Ok(()) };
        match std::iter::once(named.current).chain(named.previous).find(|id| !self.sealing.holds(id)) {
            Some(id) => Err(StoreError::SealingKeyMissing { id }),
            None => Ok(()),
        }
    }

    /// The keys as of the last read of the rows.
    pub(crate) fn known_ring(&self) -> Arc<KeyRing> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys from which agents accept tasks and the authorities that they trust, signed at `now`.
    pub async fn signed_set(&self, reader: &mut Reader, now: Timestamp) -> Result<SignedSet, KeysError> {
        let ring = self.ring(reader).await?;
        let expires_at = now.plus(SigningKeySet::LIFE);
        let (keys, authorities) = (ring.accepted.clone(), ring.authorities.key_set_certificates());
        let set = SigningKeySet { version: ring.version, keys, expires_at, authorities };
        let unusable = |error: &dyn std::fmt::Display| KeysError::Unusable(error.to_string());
        let signed = ring.authorities.sign(&set).map_err(|error| unusable(&error))?;
        let text = serde_json::to_string(&signed).map_err(|error| unusable(&error))?;
        Ok(SignedSet { version: set.version, text })
    }

    /// Seals a secret's bytes so that they open only under the secret's id.
    pub fn seal(&self, id: SecretId, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        self.sealing.seal(id.to_string().as_bytes(), plain)
    }

    /// Opens bytes sealed by [`Keys::seal`] under the same id.
    pub fn unseal(&self, id: SecretId, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.sealing.open(id.to_string().as_bytes(), sealed)
    }

    /// Builds the ring from the rows. Refuses a key whose public half does not match its seed.
    fn open_ring(
        &self,
        version: u64,
        stored: Vec<StoredSigningKey>,
        authorities: Arc<Authorities>,
    ) -> Result<KeyRing, KeysError> {
        let mut ring = KeyRing { version, accepted: Vec::new(), signer: None, authorities };
        for stored in stored.into_iter().filter(|stored| stored.key.state.is_accepted()) {
            let key =
                TaskKey { kid: stored.key.key_id.clone(), public: stored.key.public.clone(), state: stored.key.state };
            if stored.seed.is_empty() {
                ring.accepted.push(key);
                continue;
            }
            let signer = self.signer(&stored)?;
            let own = signer.public(key.state);
            if own != key {
                return Err(KeysError::Unusable(format!("{}: the public key does not match the seed", key.kid)));
            }
            ring.accepted.push(own);
            if key.state == KeyState::Active {
                ring.signer = Some(signer);
            }
        }
        Ok(ring)
    }

    fn open_authorities(&self, stored: Vec<StoredAuthority>) -> Result<Arc<Authorities>, KeysError> {
        let known = self.authorities();
        if known.matches(&stored) {
            return Ok(known);
        }
        let opened = Authorities::open(&self.sealing, &stored);
        Ok(Arc::new(opened.map_err(|error| KeysError::Unusable(error.to_string()))?))
    }

    fn signer(&self, stored: &StoredSigningKey) -> Result<TaskSigner, KeysError> {
        let key_id = &stored.key.key_id;
        let unusable = |error: &dyn std::fmt::Display| KeysError::Unusable(format!("{key_id}: {error}"));
        let seed =
            self.sealing.open(&StoredSigningKey::seal_owner(key_id), &stored.seed).map_err(|error| unusable(&error))?;
        let seed: &[u8; 32] = seed.as_slice().try_into().map_err(|error| unusable(&error))?;
        Ok(TaskSigner::from_seed(seed))
    }
}

impl KeyRing {
    /// The version of the set.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The authorities of the set.
    pub fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// Returns `true` during a rotation of a key or authority, as long as one is staged or in grace.
    pub fn is_changing(&self) -> bool {
        self.authorities.is_changing() || self.accepted.iter().any(|key| key.state != KeyState::Active)
    }

    /// Signs a task with the active key.
    pub fn sign(&self, statement: &TaskStatement) -> Result<SignedTask, KeysError> {
        let signer = self.signer.as_ref().ok_or(KeysError::NoneActive)?;
        let envelope = signer.sign(statement)?;
        Ok(SignedTask {
            sha256: envelope.payload_sha256(),
            key_id: signer.key_id().to_owned(),
            envelope: envelope.to_json(),
        })
    }

    /// Signs a seal of the audit with the active key.
    pub(crate) fn sign_audit_seal(
        &self,
        control_plane: &str,
        draft: AuditSealRecord,
    ) -> Result<AuditSealRecord, KeysError> {
        let signer = self.signer.as_ref().ok_or(KeysError::NoneActive)?;
        let signature = audit_seal_statement(control_plane, &draft).sign(signer);
        Ok(AuditSealRecord { key_id: signer.key_id().to_owned(), signature, ..draft })
    }
}

/// Returns what the signature of a seal of the audit covers.
pub(crate) fn audit_seal_statement<'a>(control_plane: &'a str, seal: &'a AuditSealRecord) -> AuditSealStatement<'a> {
    AuditSealStatement {
        control_plane,
        number: seal.number,
        first: seal.first,
        last: seal.last,
        records: seal.records,
        at: seal.at,
        previous: &seal.previous,
        digest: &seal.digest,
    }
}

/// Returns the proof for records written under the given sealing keys.
pub fn record_proof(sealing: Arc<SealingKeys>) -> Arc<dyn RecordProof> {
    Arc::new(SealedProof(sealing))
}

/// Proves rows and reseals values with the sealing keys.
struct SealedProof(Arc<SealingKeys>);

impl RecordProof for SealedProof {
    fn code(&self, key: Option<&str>, kind: &str, fields: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.code(key, kind, fields)
    }

    fn proven_by(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> Option<String> {
        self.0.proven_by(kind, fields, code)
    }

    fn reseal<'a>(&self, key: Option<&str>, owner: &[u8], sealed: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.0.reseal(key, owner, sealed)
    }
}
