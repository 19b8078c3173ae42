//! History that was moved to the artifact store.

use gpuaas_model::{ArchiveId, ArchiveKind, Timestamp};
use serde::{Deserialize, Serialize};

/// A file of history in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    /// Its id.
    pub id: ArchiveId,
    /// What it holds.
    pub kind: ArchiveKind,
    /// When its oldest entry was made.
    pub from: Timestamp,
    /// When its newest entry was made.
    pub until: Timestamp,
    /// Operations, tasks, events or audit records in it.
    pub entries: u64,
    /// The numbers that it holds, of events and audit records.
    pub ranges: Vec<ArchivedRange>,
    /// SHA-256 of the file, 64 hex digits.
    pub sha256: String,
    /// Length of the file.
    pub size_bytes: u64,
    /// When it was written.
    pub created_at: Timestamp,
}

/// Consecutive numbers of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedRange {
    /// An event stream, or [`ArchivedRange::AUDIT`].
    pub stream: String,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

impl ArchivedRange {
    /// The stream that stands for the audit.
    pub const AUDIT: &str = "audit";
}
