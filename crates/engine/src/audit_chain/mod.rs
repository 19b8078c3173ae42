//! The chain of the audit: seals that cover every audit record, each together with the seal before it.
//!
//! A seal's digest is the SHA-256 of lines: the digest of the seal before it (64 zeros for the first seal), then each record as the JSON
//! that archives contain. Its signature also covers its numbers and its time. Somebody who can write rows but has no signing key can
//! therefore change, add or remove no sealed record without removing every later seal. A process that remembers a removed seal stops
//! sealing. Whatever is left is an intact chain, and a process that was started later seals what follows it, changed or not: then only a head
//! that was noted elsewhere shows that seals were removed.

mod digest;
mod records;
mod sealed;
mod verify;

use gpuaas_model::ArchiveId;
use gpuaas_store::StoreError;

use crate::keys::KeysError;
pub(crate) use digest::{FIRST_PREVIOUS, SealDigest};
pub(crate) use records::{Cause, ChainRecords, Gap, Segment};
pub use sealed::unsealed_audit_since;
pub(crate) use sealed::{SealerMemory, readable, sealed_state};
pub(crate) use verify::verify;
pub use verify::{ChainDefect, ChainHead, Verification};

/// Why the audit could not be sealed or verified.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No key can sign a seal.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A seal that this process wrote or read is gone: somebody changed the table of seals.
    #[error(
        "audit seal {seal} with the digest {digest} is gone; the newest in the database is {newest}. Copy the database, \
         find out who can write to it, run `gpuaas audit verify` with a noted head, then restart all control planes"
    )]
    Removed {
        /// The number of the seal.
        seal: u64,
        /// The digest of the seal.
        digest: String,
        /// The number of the newest seal in the database; 0 if there is none.
        newest: u64,
    },
    /// The newest seal covers numbers that no record has: its row, or the counter, was forged or lost.
    #[error("the newest audit seal ends with record {sealed}, but only {written} records were written")]
    Ahead {
        /// The number of the last record that the seal claims.
        sealed: u64,
        /// The number of the newest record according to the counter.
        written: u64,
    },
    /// The archive that holds a record cannot be read now.
    #[error("audit record {record} cannot be read from archive {archive}: {why}")]
    Archive {
        /// The number of the record.
        record: u64,
        /// The id of the archive.
        archive: ArchiveId,
        /// The reason.
        why: String,
    },
}
