//! The chain of the audit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The present state of the audit's chain. A verification shows whether the chain is intact.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditChain {
    /// Number of audit records that were ever written.
    pub records: u64,
    /// Number of the last record that a seal covers; 0 before the first seal.
    pub sealed_until: u64,
    /// Number of records that no seal covers yet. A record is sealed some seconds after it was written.
    pub unsealed: u64,
    /// Time of the oldest record that no seal covers yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub unsealed_since: Option<String>,
    /// The newest seal. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_seal: Option<AuditSeal>,
    /// Why the replica that answers seals nothing, for example because seals were removed. Absent while it seals.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped: Option<String>,
}

/// A signed digest of consecutive audit records and of the seal before it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditSeal {
    /// Number of the seal.
    pub number: u64,
    /// Time at which it was made.
    #[schema(format = DateTime)]
    pub at: String,
    /// SHA-256 of the previous seal's digest and the records, 64 hex digits.
    pub digest: String,
    /// Id of the task-signing key that signed it.
    pub key: String,
}

/// A request to verify the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyAudit {
    /// A head that was noted earlier. It must be part of the chain, which shows that no end of the chain was removed since.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expected_head: Option<AuditHead>,
}

/// A seal, named by its number and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// Number of the seal.
    #[schema(minimum = 1)]
    pub seal: u64,
    /// Digest of the seal, 64 hex digits.
    #[schema(min_length = 64, max_length = 64, pattern = "^[0-9a-f]{64}$")]
    pub digest: String,
}

/// Result of a verification of the audit, from its first record.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    /// `intact` or `broken`.
    #[schema(value_type = crate::schema::ChainResult)]
    pub result: String,
    /// Number of records that were read.
    pub records: u64,
    /// How many of the records were read from archives.
    pub archived: u64,
    /// How many of the records no seal covers yet.
    pub unsealed: u64,
    /// Number of seals that were read.
    pub seals: u64,
    /// The newest seal with a valid signature. Note it outside of the control plane, to give it to a later verification.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub head: Option<AuditHead>,
    /// Time at which that seal was made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub sealed_at: Option<String>,
    /// The first defects, at most 20, in the order of the chain. Empty if the chain is intact.
    pub defects: Vec<AuditDefect>,
    /// Number of all defects.
    pub defects_found: u64,
}

/// A place at which the audit differs from its seals.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditDefect {
    /// `changed`, `missing`, `added` or `signature`.
    #[schema(value_type = crate::schema::ChainDefectKind)]
    pub kind: String,
    /// Number of the seal. Absent if the defect is after the last seal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seal: Option<u64>,
    /// Number of the record. Absent if the defect is in a seal, or in one of the records that the seal covers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub record: Option<u64>,
    /// Description of the defect.
    pub detail: String,
}
