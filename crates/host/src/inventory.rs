//! What is found on a host: who listens where.

use std::net::SocketAddr;

use crate::host::Process;

/// A socket of the node that waits for whoever comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it waits.
    pub address: SocketAddr,
    /// One that holds it; `None` for the kernel's own.
    pub process: Option<Process>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}
