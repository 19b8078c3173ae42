//! The control plane's end of the node channel: nodes dial in over mutual TLS; the control plane sends requests over the same connection.
//!
//! Guarantees:
//! - A task is pushed as soon as it is dispatched; nothing on its path polls.
//! - Every stream, line, body and wait is bounded.
//! - A misbehaving node loses its own connection and affects no other node.
//! - A node that may no longer connect loses all its connections at once.
//!
//! One replica holds a node's channel; the other replicas reach the node through that replica with the same requests.
//!
//! Deliberately absent: rows and decisions (behind [`ChannelBackend`]), and the meaning of tasks.

mod accept;
mod backend;
mod channel;
mod connections;
mod error;
mod fetch;
mod handshake_queue;
mod handshakes;
#[cfg(test)]
mod hostile_tests;
mod idle;
mod journal;
mod last_heard;
mod lines;
mod link;
mod listener;
mod liveness;
mod peer_service;
#[cfg(test)]
mod peer_tests;
mod peers;
mod proxy_protocol;
mod rate_limits;
mod recheck;
mod report_throttle;
mod reports;
mod requests;
mod session;
mod tunnel;

pub use accept::accept;
pub use backend::{Admission, ArtifactBody, ChannelBackend, FetchError, PresentedCertificate, Refused};
pub use channel::{Channel, ChannelOptions, JournalStream, TaskStream};
pub use error::ChannelError;
pub use idle::{BusyGuard, Idle};
pub use listener::ChannelService;
pub use peer_service::PeerService;
pub use peers::{Holder, Holders, PeerOptions};
pub use proxy_protocol::{Peer, ProxyError, ProxyProtocol};
pub use tunnel::TunnelIo;
