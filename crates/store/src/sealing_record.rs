//! The record of the sealing key in use.

use gpuaas_model::{CorrelationId, Timestamp};
use serde::{Deserialize, Serialize};

/// The sealing key in use and the progress of its rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealingRecord {
    /// The id of the key that seals values and computes codes.
    pub current: String,
    /// The id of the previous key, while rows under it may remain.
    pub previous: Option<String>,
    /// The last row that was moved to the current key; absent before the first.
    pub reached: Option<ResealPosition>,
    /// When the key came into use, or when the last row was moved to it.
    pub since: Timestamp,
    /// The request that put the key into use; absent for the first key.
    pub correlation: Option<CorrelationId>,
}

impl SealingRecord {
    /// The setting that holds this record.
    pub(crate) const SETTING: &str = "sealing.current";

    /// Returns a record for this key without a rotation in progress.
    pub fn new(current: String, since: Timestamp) -> Self {
        Self { current, previous: None, reached: None, since, correlation: None }
    }

    /// Returns the ids of the keys that rows may be under.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// A position in the order in which rows are resealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResealPosition {
    pub(crate) table: Table,
    pub(crate) after: String,
}

/// The tables with sealed values or records with codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Table {
    Settings,
    SigningKeys,
    Authorities,
    ServiceAccounts,
    Tokens,
    Enrollments,
    Secrets,
    Idempotency,
    BrowserSessions,
    SignInLinks,
}
