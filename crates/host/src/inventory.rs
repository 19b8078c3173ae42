//! Processes and listening sockets of a host.

use std::{fmt, net::SocketAddr};

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

impl fmt::Display for Process {
    /// Formats the process like `/usr/bin/socat (812)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.program, self.pid)
    }
}

impl fmt::Display for Listener {
    /// Formats the listener like `6443/tcp at 10.4.0.7 (/usr/bin/socat, 812)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} at {}", self.address.port(), self.protocol, self.address.ip())?;
        match &self.process {
            Some(process) => write!(f, " ({}, {})", process.program, process.pid),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Protocol {
    /// Formats the name of the protocol as it is written after a port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}
