//! The control plane's end of the node channel: nodes dial in by mutual TLS, the control plane pushes and asks over the same connection.
//!
//! Guarantees: a task is pushed the moment it is handed over; nothing on its way polls; every stream, line and body is bounded; a node
//! that misbehaves loses its own connection and nothing else.
//!
//! Of several replicas one holds a node's channel; the others reach the node through it, by the same requests.
//!
//! Deliberately absent: rows and decisions (behind [`ChannelBackend`]), and what tasks mean.

mod backend;
mod channel;
mod fetch;
mod lines;
mod link;
mod listener;
mod liveness;
mod peer_service;
#[cfg(test)]
mod peer_tests;
mod peers;
mod requests;
mod session;
mod tunnel;

pub use backend::{ArtifactBody, ChannelBackend, FetchError, Refused};
pub use channel::{Channel, ChannelError, ChannelOptions, JournalStream, TaskStream};
pub use listener::ChannelService;
pub use peer_service::PeerService;
pub use peers::{Holder, PeerOptions};
pub use tunnel::TunnelIo;
