//! Limits what the kernel holds for a connection of the API, and for how long.

use std::{io, time::Duration};

use rustix::net::sockopt;
use tokio::net::TcpListener;

use crate::progress::STALLED_AFTER;

/// Size of the kernel's send buffer; the kernel doubles it for its bookkeeping. 128 KiB in flight give 2.5 MB/s at a round trip of 50 ms.
/// By default the kernel buffers up to 4 MiB per connection (`net.ipv4.tcp_wmem`).
const SEND_BUFFER_BYTES: usize = 64 * 1_024;
/// Size of the kernel's receive buffer. Requests are small.
const RECEIVE_BUFFER_BYTES: usize = 64 * 1_024;
/// The kernel sends a keepalive probe to a client that is silent for this long.
const KEEPALIVE_AFTER: Duration = STALLED_AFTER;
/// Interval of further probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// Unanswered probes after which the kernel ends the connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Sets the limits of all connections that the listener accepts from now on. On Linux a connection inherits its listener's options, and
/// buffer sizes only count before the handshake, which negotiates the window scale.
pub(crate) fn limit(listener: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(listener, SEND_BUFFER_BYTES)?;
    sockopt::set_socket_recv_buffer_size(listener, RECEIVE_BUFFER_BYTES)?;
    // Limits how long the client may leave data unacknowledged or its window closed, also after this process closed the connection.
    let milliseconds = u32::try_from(STALLED_AFTER.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(listener, milliseconds)?;
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)?;
    Ok(())
}

#[cfg(test)]
mod tests;
