//! The interface between the agent and the handlers of its task types, its own and those of apps. A handler gets its parameters and a
//! [`Context`]; an [`Entry`] is its line in the agent's catalog.
//!
//! Every handler is idempotent: it checks before it acts, so that a repetition after an interruption does only what is missing.
//!
//! Deliberately absent: accepting a task and recording its result (`agent`), and any knowledge of apps.

mod context;
mod control_plane;
mod entry;
mod settle;
pub mod staging;
#[cfg(feature = "test-host")]
pub mod test_host;
mod unit;

pub use context::{Context, host_failed};
pub use control_plane::{ByteStream, ControlPlane, RequestError};
pub use entry::{Entry, entry};
pub use settle::settled;
pub use unit::{report, tail};
