//! Records of history that was moved to the artifact store.

use gpuaas_model::{ArchiveId, ArchiveKind, Timestamp};
use serde::{Deserialize, Serialize};

/// A file of history in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    /// Unique id of the archive.
    pub id: ArchiveId,
    /// The kind of history in the file.
    pub kind: ArchiveKind,
    /// Creation time of its oldest entry.
    pub from: Timestamp,
    /// Creation time of its newest entry.
    pub until: Timestamp,
    /// Number of operations, tasks, events or audit records in the file.
    pub entries: u64,
    /// The numbers of the events or audit records in the file.
    pub ranges: Vec<ArchivedRange>,
    /// SHA-256 of the file, 64 hex digits.
    pub sha256: String,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// When the archive was written.
    pub created_at: Timestamp,
}

/// A range of consecutive numbers of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedRange {
    /// An event stream, or [`ArchivedRange::AUDIT`].
    pub stream: String,
    /// The first number, inclusive.
    pub first: u64,
    /// The last number, inclusive.
    pub last: u64,
}

impl ArchivedRange {
    /// The stream name that stands for the audit log.
    pub const AUDIT: &str = "audit";
}
