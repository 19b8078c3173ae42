//! Units, in systemd's terms.

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

/// What the unit files say about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitFileState {
    /// The unit starts at every boot.
    Enabled,
    /// The unit has a file and does not start at boot by itself, or only at the next one.
    Disabled,
    /// The unit is masked: nothing can start it.
    Masked,
    /// The unit has no file.
    Missing,
}

/// A unit's status in systemd's terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// The unit's name, with its suffix.
    pub unit: String,
    /// `ActiveState`.
    pub active: String,
    /// `SubState`.
    pub sub: String,
    /// `Result`; `exec-condition` if the last start was skipped, which systemd does not count as a failure.
    pub result: String,
    /// `NRestarts`.
    pub n_restarts: u32,
    /// `ExecMainStatus`.
    pub exec_main_status: i32,
    /// `MainPID`; 0 if there is none.
    pub main_pid: i32,
    /// `ExecMainStartTimestamp`: when the main process was started last, by the machine's clock; `None` if it never was.
    pub started_at: Option<Timestamp>,
    /// Time of the last change of state; the Unix epoch if the init does not know it.
    pub since: Timestamp,
}

impl UnitStatus {
    /// Returns true if the unit is active and its main process runs.
    pub fn is_running(&self) -> bool {
        self.active == "active" && self.sub == "running"
    }
}
