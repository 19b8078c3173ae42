//! The certificate authorities in effect at one version of the key set: the issuer and the other trusted ones. Rows name them, so that
//! every replica changes over with the same commit. [`crate::authority_rotation`] rotates them.

use std::sync::Arc;

use gpuaas_model::{KeyState, Timestamp};
use gpuaas_store::{AuthorityRecord, StoredAuthority};
use gpuaas_trust::{Authority, AuthorityError, SealError, SealingKeys, SignedKeySet, SigningKeySet};
use rustls_pki_types::CertificateDer;

/// The authorities in effect.
pub struct Authorities {
    active: Arc<Authority>,
    /// The previous authority, while it is in grace.
    predecessor: Option<Arc<Authority>>,
    /// The next authority, while it is staged.
    staged: Option<Arc<Authority>>,
    /// `true` if no other authority has existed.
    is_first: bool,
    /// Key-set version at which these took effect; 0 if no row names one.
    version: u64,
}

/// The reasons for which an authority's row cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The key could not be unsealed.
    #[error("authority {0}: {1}")]
    Unseal(String, SealError),
    /// Certificate and key do not form a valid authority.
    #[error("authority {0}: {1}")]
    Unusable(String, AuthorityError),
    /// No row names an active authority.
    #[error("no authority is active")]
    NoneActive,
}

impl Authorities {
    /// The first and only authority.
    pub(crate) fn first(authority: Authority) -> Self {
        Self { active: Arc::new(authority), predecessor: None, staged: None, is_first: true, version: 0 }
    }

    /// Opens the authorities of the rows.
    pub(crate) fn open(sealing: &SealingKeys, stored: &[StoredAuthority]) -> Result<Self, AuthoritiesError> {
        let of = |state| -> Result<Option<Arc<Authority>>, AuthoritiesError> {
            let found = stored.iter().find(|stored| stored.authority.state == state);
            found.map(|stored| open_authority(sealing, stored).map(Arc::new)).transpose()
        };
        Ok(Self {
            active: of(KeyState::Active)?.ok_or(AuthoritiesError::NoneActive)?,
            predecessor: of(KeyState::Grace)?,
            staged: of(KeyState::Staged)?,
            is_first: stored.len() == 1,
            version: newest_version(stored),
        })
    }

    /// Returns whether these rows are the ones from which this value was opened.
    pub(crate) fn matches(&self, stored: &[StoredAuthority]) -> bool {
        self.version == newest_version(stored)
    }

    /// The authority that issues certificates.
    pub fn active(&self) -> &Arc<Authority> {
        &self.active
    }

    /// The authority with the given digest, if enrollment strings may pin it now: the active one or its predecessor.
    pub fn pinned(&self, sha256: &str) -> Option<&Arc<Authority>> {
        std::iter::once(&self.active).chain(&self.predecessor).find(|authority| authority.digest() == sha256)
    }

    /// The certificates of all authorities in effect, the active one first.
    pub fn trusted(&self) -> Vec<CertificateDer<'static>> {
        self.each().map(|authority| authority.certificate().clone()).collect()
    }

    /// The certificates that enrollment strings may pin, PEM, the active one first.
    pub fn pem(&self) -> String {
        let pinned = std::iter::once(&self.active).chain(&self.predecessor);
        pinned.map(|authority| authority.certificate_pem()).collect()
    }

    /// The PEM certificates for the key set. Empty while only one authority has ever existed, so that agents from before authority rotation
    /// accept the set.
    pub(crate) fn key_set_certificates(&self) -> Vec<String> {
        match self.is_first {
            true => Vec::new(),
            false => self.each().map(|authority| authority.certificate_pem().to_owned()).collect(),
        }
    }

    /// Signs a set with the active authority, and with its predecessor for agents that know only that one.
    pub(crate) fn sign(&self, set: &SigningKeySet) -> Result<SignedKeySet, AuthorityError> {
        let signed = set.sign(&self.active)?;
        match &self.predecessor {
            Some(predecessor) => signed.signed_by_predecessor(predecessor),
            None => Ok(signed),
        }
    }

    /// Returns `true` while an authority is staged or in grace.
    pub(crate) fn is_changing(&self) -> bool {
        self.staged.is_some() || self.predecessor.is_some()
    }

    fn each(&self) -> impl Iterator<Item = &Arc<Authority>> {
        std::iter::once(&self.active).chain(&self.staged).chain(&self.predecessor)
    }
}

/// The highest version of any row; 0 if there is none.
fn newest_version(stored: &[StoredAuthority]) -> u64 {
    stored.iter().map(|stored| stored.authority.version).max().unwrap_or(0)
}

/// Creates the row of an authority, with its key sealed.
pub fn stored_authority(
    sealing: &SealingKeys,
    authority: &Authority,
    state: KeyState,
    version: u64,
    now: Timestamp,
) -> Result<StoredAuthority, SealError> {
    let id = authority.digest();
    let key = sealing.seal(&StoredAuthority::seal_owner(&id), authority.key_pem().as_bytes())?;
    let authority = AuthorityRecord {
        id,
        certificate: authority.certificate_pem().to_owned(),
        by_predecessor: authority.by_predecessor_pem(),
        state,
        version,
        created_at: now,
        changed_at: now,
        correlation: None,
    };
    Ok(StoredAuthority { authority, key })
}

/// Opens the authority of a row.
pub fn open_authority(sealing: &SealingKeys, stored: &StoredAuthority) -> Result<Authority, AuthoritiesError> {
    let AuthorityRecord { id, certificate, by_predecessor, .. } = &stored.authority;
    let key = sealing.open(&StoredAuthority::seal_owner(id), &stored.key);
    let key = key.map_err(|error| AuthoritiesError::Unseal(id.clone(), error))?;
    let authority = Authority::from_pem(certificate, &String::from_utf8_lossy(&key));
    authority
        .and_then(|authority| authority.with_predecessor(by_predecessor))
        .map_err(|error| AuthoritiesError::Unusable(id.clone(), error))
}
