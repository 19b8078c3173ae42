//! What is found on a host: processes, and who listens where.

use std::net::SocketAddr;

/// A process of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// The program it runs, as the node names it; a container's process names it as its container does.
    pub program: String,
    /// The unit that it belongs to, if any.
    pub unit: Option<String>,
    /// Its control group as the node's init sees it; empty where the node has none of its own.
    pub cgroup: String,
}

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
