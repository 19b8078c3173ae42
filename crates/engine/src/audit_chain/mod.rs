//! The chain of the audit: seals that cover every audit record, each together with the seal before it.
//!
//! A seal's digest is the SHA-256 of lines: the digest of the seal before it (64 zeros for the first seal), then each record as the JSON
//! that archives contain. Its signature also covers its numbers and its time. Somebody who can write rows but has no signing key can
//! therefore change, add or remove no sealed record without removing every later seal. Whatever is left is an intact chain, and the control
//! plane seals what follows it, changed or not: only a head that was noted elsewhere shows that seals were removed.

mod digest;
mod records;
mod verify;

use gpuaas_model::ArchiveId;
use gpuaas_store::StoreError;

use crate::keys::KeysError;
pub(crate) use digest::{FIRST_PREVIOUS, SealDigest};
pub(crate) use records::ChainRecords;
pub(crate) use verify::verify;
pub use verify::{ChainBreak, ChainHead, Verification};

/// Why the audit could not be sealed or verified.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No key can sign a seal.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The newest seal covers numbers that no record has: its row, or the counter, was forged or lost.
    #[error("the newest audit seal ends with record {sealed}, but only {written} records were written")]
    Ahead {
        /// The number of the last record that the seal claims.
        sealed: u64,
        /// The number of the newest record according to the counter.
        written: u64,
    },
    /// The archive that holds a record cannot be read.
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
