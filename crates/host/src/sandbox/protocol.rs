//! What a sandbox's init is asked over its socket: one JSON line each way, or many back for streams.

use serde::{Deserialize, Serialize};

use crate::{
    journal::{JournalFrom, JournalLine},
    unit::UnitStatus,
};

/// Longest line in either direction, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1_024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Reads unit files anew.
    DaemonReload,
    /// Starts a unit.
    Start {
        /// Which.
        unit: String,
        /// Whether to answer only when the start job has ended, as systemctl does.
        wait: bool,
    },
    /// Stops a unit and answers when it is.
    Stop {
        /// Which.
        unit: String,
    },
    /// Sets whether a unit starts at boot.
    Enable {
        /// Which.
        unit: String,
        /// Whether.
        enabled: bool,
    },
    /// Forgets a unit's failures.
    ResetFailed {
        /// Which.
        unit: String,
    },
    /// How a unit is.
    Status {
        /// Which.
        unit: String,
    },
    /// Whether a unit starts at boot.
    IsEnabled {
        /// Which.
        unit: String,
    },
    /// How a unit is now and after every change; streams.
    Watch {
        /// Which.
        unit: String,
    },
    /// A unit's journal; streams.
    Journal {
        /// Which.
        unit: String,
        /// Where to begin.
        from: JournalFrom,
        /// Whether to go on with new lines.
        follow: bool,
    },
}

/// An answer, or one line of a streamed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done; whether there was anything to do.
    Changed(bool),
    /// How the unit is, if it is known.
    Status(Option<UnitStatus>),
    /// Whether it starts at boot.
    Enabled(bool),
    /// A line of a journal.
    Line(JournalLine),
    /// The start job failed, with systemctl's own words.
    JobFailed(String),
    /// There is no such unit.
    NotFound(String),
    /// The request makes no sense.
    Refused(String),
}
