//! How far the audit is sealed, according to its rows and to what this process remembers of them.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gpuaas_model::Timestamp;
use gpuaas_store::{AuditSealRecord, Reader, StoreError};

use super::{Cause, ChainError, ChainHead, Gap};

/// Records are sealed without those of archives that could not be read for this long. The store of archives may be unmounted for a
/// maintenance; an archive that was only claimed is never readable.
const ARCHIVE_AWAITED: Duration = Duration::from_secs(3_600);

/// What a process remembers of the chain. A restart forgets it.
#[derive(Default)]
pub(crate) struct SealerMemory {
    /// The newest seal that this process wrote or read.
    newest: Mutex<Option<ChainHead>>,
    /// When an archive could not be read for the first time since the last seal. One wait is enough for all of them: the store has them all.
    unreadable_since: Mutex<Option<Timestamp>>,
}

impl SealerMemory {
    /// Returns the newest seal that this process wrote or read. Call it before the rows are read: seals only become newer.
    pub(crate) fn newest(&self) -> Option<ChainHead> {
        lock(&self.newest).clone()
    }

    /// Remembers the newest seal.
    pub(crate) fn remember(&self, seal: &AuditSealRecord) {
        *lock(&self.newest) = Some(ChainHead::of(seal));
    }

    /// Remembers that a seal was written.
    pub(crate) fn sealed(&self, seal: &AuditSealRecord) {
        self.remember(seal);
        *lock(&self.unreadable_since) = None;
    }

    /// Fails if the records of a gap may be readable soon, so that they must not be left out of a seal yet.
    pub(crate) fn check_gap(&self, gap: &Gap, now: Timestamp) -> Result<(), ChainError> {
        let Cause::Archive { id, error } = &gap.cause else { return Ok(()) };
        let since = *lock(&self.unreadable_since).get_or_insert(now);
        if now.since(since) < ARCHIVE_AWAITED {
            return Err(ChainError::Archive { archive: *id, record: gap.first, why: error.to_string() });
        }
        tracing::error!(%gap, "the next audit seal does not cover them: their archive was unreadable for too long");
        Ok(())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the newest seal and the number of the newest record. Fails if the audit must not be sealed: a seal that the process `remembers`
/// is gone, or the newest one covers records that were never written.
pub(crate) async fn sealed_state(
    reader: &mut Reader,
    remembers: Option<ChainHead>,
) -> Result<(Option<AuditSealRecord>, u64), ChainError> {
    let newest = reader.newest_audit_seal().await?;
    let head = newest.as_ref().map(ChainHead::of);
    if let Some(remembered) = remembers.filter(|remembered| head.as_ref() != Some(remembered)) {
        let found = reader.chained_seals(remembered.seal - 1, 1).await?.pop().and_then(|found| found.seal);
        if found.is_none_or(|seal| ChainHead::of(&seal) != remembered) {
            let newest = head.map_or(0, |head| head.seal);
            return Err(ChainError::Removed { seal: remembered.seal, digest: remembered.digest, newest });
        }
    }
    let (written, sealed) = (reader.last_audit().await?, newest.as_ref().map_or(0, |seal| seal.last));
    if written < sealed {
        return Err(ChainError::Ahead { sealed, written });
    }
    Ok((newest, written))
}

/// Returns when the oldest audit record was written that no seal covers; `None` if seals cover all. A seal that cannot be read, or that
/// covers records that were never written, covers none.
pub async fn unsealed_audit_since(reader: &mut Reader) -> Result<Option<Timestamp>, StoreError> {
    let newest = readable(reader.newest_audit_seal().await)?.ok().flatten();
    let written = readable(reader.last_audit().await)?.unwrap_or(0);
    let sealed = newest.map(|seal| seal.last).filter(|sealed| *sealed <= written).unwrap_or(0);
    let oldest = reader.chained_records(sealed, 1).await?.pop();
    Ok(oldest.and_then(|oldest| oldest.record).map(|record| record.at))
}

/// Separates a row that cannot be read, or is named by another row and does not exist, from failures of the database.
pub(crate) fn readable<T>(read: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(error @ (StoreError::Corrupt(_) | StoreError::NotFound { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
