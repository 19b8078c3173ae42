//! The control plane's end of the node channel: nodes dial in by mutual TLS, the control plane pushes and asks over the same connection.
//!
//! Guarantees: a task is pushed the moment it is handed over; nothing on its way polls; every stream, line and body is bounded; a node
//! that misbehaves loses its own connection and nothing else.
//!
//! Deliberately absent: rows and decisions (behind [`ChannelBackend`]), and what tasks mean.

mod backend;
mod channel;
mod fetch;
mod lines;
mod listener;
mod liveness;
mod requests;
mod session;
mod tunnel;

pub use backend::{ArtifactBody, ChannelBackend, FetchError, Refused};
pub use channel::{Channel, ChannelError, ChannelOptions, JournalStream, TaskStream};
pub use listener::ChannelService;
pub use tunnel::TunnelIo;
