//! Reports of systemd's units.

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

/// State of a unit as systemd reports it. `active` alone is not enough: RKE2's unit loops in `activating` and never reaches `failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitReport {
    /// Name of the unit.
    pub unit: String,
    /// `ActiveState` of systemd.
    pub active: String,
    /// `SubState` of systemd.
    pub sub: String,
    /// `Result` of systemd.
    pub result: String,
    /// `NRestarts` of systemd.
    pub n_restarts: u32,
    /// `ExecMainStatus` of systemd.
    pub exec_main_status: i32,
    /// Time since when the unit is in this state.
    pub since: Timestamp,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalExcerpt {
    /// Time of the line.
    pub at: Timestamp,
    /// Text of the line, truncated to 1,024 bytes.
    pub text: String,
}
