//! Units and journals, in systemd's own terms.

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A unit as systemd describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its name, with suffix.
    pub unit: String,
    /// ActiveState.
    pub active: String,
    /// SubState.
    pub sub: String,
    /// Result.
    pub result: String,
    /// NRestarts.
    pub n_restarts: u32,
    /// ExecMainStatus.
    pub exec_main_status: i32,
    /// MainPID; 0 while there is none.
    pub main_pid: i32,
    /// Since when it is in this state.
    pub since: Timestamp,
}

impl UnitStatus {
    /// Whether it is active and its main process runs.
    pub fn is_running(&self) -> bool {
        self.active == "active" && self.sub == "running"
    }
}

/// Where to begin in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalFrom {
    /// Behind the line of that cursor.
    After(u64),
    /// With the first line at or after that time.
    Since(Timestamp),
    /// With the last so many lines.
    Tail(u32),
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Grows from line to line.
    pub cursor: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The line; one longer than [`JournalLine::TEXT_BYTES_MAX`] is cut to it and says so at its end.
    pub text: String,
}

impl JournalLine {
    /// Longest line kept, in bytes.
    pub const TEXT_BYTES_MAX: usize = 4_096;
}
