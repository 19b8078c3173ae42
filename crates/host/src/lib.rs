//! Everything that an operation can do to a host: files, units, journals, processes. No other crate touches them.
//!
//! Guarantees: every change is idempotent (repeating it after a crash ends in the same state and returns [`Changed::No`]); files appear
//! whole or not at all; nothing outside the host's own root is reached and no planted link is followed (`root.rs` has the rules); every
//! backend takes the paths that the host itself uses.
//!
//! The two backends, [`systemd`] and [`sandbox`], share the modules for what they have in common and pass the same suite (`host-contract`).
//!
//! Deliberately absent: any knowledge of apps (their handlers, in `apps/`).

mod cgroup;
mod changes;
mod clock;
mod digest;
mod error;
mod file;
mod files;
mod firewall;
mod host;
mod inventory;
mod journal;
mod links;
mod lookup;
mod machine;
mod mounts;
mod path;
mod place;
mod processes;
mod program;
mod ready;
mod removal;
mod root;
mod root_files;
pub mod sandbox;
mod sockets;
pub mod survey;
pub mod systemd;
mod unit;
mod write_lock;

pub use changes::WATCHED_PATHS_MAX;
pub use clock::now;
pub use digest::{ContentId, ParseDigestError, Sha256};
pub use error::{HostError, is_disk_full};
pub use file::{Changed, Durable, FileSpec};
pub use host::{Command, CommandEnd, FIREWALL_RULES_MAX, Facts, Files, Host, Inventory, Units};
pub use inventory::{Listener, Process, Protocol};
pub use journal::{Cursor, JournalFrom, JournalLine};
pub use program::spawn;
pub use ready::{notify_ready, notify_status};
pub use unit::{UnitFileState, UnitStatus};
