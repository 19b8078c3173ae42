//! The control plane's end of the node channel: nodes dial in by mutual TLS, the control plane pushes and asks over the same connection.
//!
//! Guarantees: a task is pushed the moment it is handed over; nothing on its way polls; every stream, line, body and wait is bounded; a node
//! that misbehaves loses its own connection and nothing else; one that may no longer connect loses all of them at once.
//!
//! Of several replicas one holds a node's channel; the others reach the node through it, by the same requests.
//!
//! Deliberately absent: rows and decisions (behind [`ChannelBackend`]), and what tasks mean.

mod backend;
mod channel;
mod connections;
mod fetch;
mod handshakes;
#[cfg(test)]
mod hostile_tests;
mod idle;
mod journal;
mod lines;
mod link;
mod listener;
mod liveness;
mod paces;
mod peer_service;
#[cfg(test)]
mod peer_tests;
mod peers;
mod proxy_protocol;
mod readmission;
mod reports;
mod requests;
mod rhythm;
mod session;
mod tunnel;
mod turns;

pub use backend::{Admission, ArtifactBody, ChannelBackend, FetchError, Presented, Refused};
pub use channel::{Channel, ChannelError, ChannelOptions, JournalStream, TaskStream};
pub use idle::{Busy, Idle};
pub use listener::ChannelService;
pub use peer_service::PeerService;
pub use peers::{Holder, PeerOptions};
pub use proxy_protocol::{Peer, ProxyError, ProxyProtocol};
pub use tunnel::TunnelIo;
