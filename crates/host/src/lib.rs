//! What an operation may do to a host: files, units, journals, processes. The only crate that touches them.
//!
//! Guarantees: every change is idempotent (repeating it after a crash ends in the same state and reports [`Changed::No`]); files appear
//! whole or not at all; nothing outside of the host's own root is reached; paths are the host's true paths on every backend.
//!
//! Deliberately absent: what any app means by it (`agent`'s handlers), and the real systemd backend, which will stand beside
//! [`sandbox`] and pass the same suite.

mod error;
mod file;
mod host;
mod inventory;
mod ready;
pub mod sandbox;
pub mod survey;
mod unit;

pub use error::{HostError, no_room};
pub use file::{Changed, FileSpec};
pub use host::{Command, CommandEnd, Facts, Host, Process};
pub use inventory::{Listener, Protocol};
pub use ready::{notify_ready, notify_status};
pub use unit::{JournalFrom, JournalLine, UnitStatus};
