//! Units, in systemd's own terms.

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
    /// Result; `exec-condition` where the last start was skipped, which systemd calls no failure.
    pub result: String,
    /// NRestarts.
    pub n_restarts: u32,
    /// ExecMainStatus.
    pub exec_main_status: i32,
    /// MainPID; 0 while there is none.
    pub main_pid: i32,
    /// Since when it is in this state; the epoch where the init does not know.
    pub since: Timestamp,
}

impl UnitStatus {
    /// Whether it is active and its main process runs.
    pub fn is_running(&self) -> bool {
        self.active == "active" && self.sub == "running"
    }
}
