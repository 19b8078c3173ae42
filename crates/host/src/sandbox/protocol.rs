//! The protocol of a sandbox's init on its socket: one JSON line per request, one per reply, and many replies for streams.

use serde::{Deserialize, Serialize};

use crate::{
    journal::{JournalFrom, JournalLine},
    unit::{UnitFileState, UnitStatus},
};

/// Longest line in either direction, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1_024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Reloads the unit files.
    DaemonReload,
    /// Starts a unit.
    Start {
        /// The unit's name.
        unit: String,
        /// True to answer only when the start job has ended, as `systemctl` does.
        wait: bool,
    },
    /// Stops a unit and answers when it has stopped.
    Stop {
        /// The unit's name.
        unit: String,
    },
    /// Enables or disables a unit at boot.
    Enable {
        /// The unit's name.
        unit: String,
        /// True to enable.
        enabled: bool,
    },
    /// Resets a unit's failed state.
    ResetFailed {
        /// The unit's name.
        unit: String,
    },
    /// Asks for a unit's status.
    Status {
        /// The unit's name.
        unit: String,
    },
    /// Masks a unit, or lifts its mask.
    Mask {
        /// The unit's name.
        unit: String,
        /// True to mask.
        masked: bool,
    },
    /// Asks what the unit files say about a unit.
    UnitFileState {
        /// The unit's name.
        unit: String,
    },
    /// Asks for a unit's status, now and after every change; streams.
    Watch {
        /// The unit's name.
        unit: String,
    },
    /// Asks for a unit's journal; streams.
    Journal {
        /// The unit's name.
        unit: String,
        /// The position at which to begin.
        from: JournalFrom,
        /// True to stream lines that are added later.
        follow: bool,
    },
}

/// A reply, or one line of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The request is done; true if it changed anything.
    Changed(bool),
    /// The unit's status; `None` if the unit is unknown.
    Status(Option<UnitStatus>),
    /// What the unit files say about the unit.
    UnitFileState(UnitFileState),
    /// A line of a journal.
    Line(JournalLine),
    /// The start job failed; the text is `systemctl`'s message for it.
    JobFailed(String),
    /// The unit does not exist; the text says so.
    NotFound(String),
    /// The request is invalid; the text is the reason.
    Refused(String),
}
