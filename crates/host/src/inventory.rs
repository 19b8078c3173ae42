//! Processes and listening sockets of a host.

use std::net::SocketAddr;

/// A process of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id, in the node's numbering.
    pub pid: i32,
    /// The path of its program in the node's file system; for a process in a container, in the container's.
    pub program: String,
    /// The systemd unit that it belongs to, if any.
    pub unit: Option<String>,
    /// Its cgroup path from the view of the node's init; empty if the node has no cgroup of its own.
    pub cgroup: String,
}

/// A listening socket of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The socket's transport protocol.
    pub protocol: Protocol,
    /// The address and port that it is bound to.
    pub address: SocketAddr,
    /// A process that has the socket open; `None` for a socket of the kernel.
    pub process: Option<Process>,
}

/// The transport protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}
