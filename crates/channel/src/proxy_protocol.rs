//! The PROXY protocol, version 2: a load balancer sends the client's address ahead of each connection that it forwards.
//!
//! Guarantees: a connection from a configured network begins with a header, within bounds of size and time, or is refused; bytes from other
//! addresses are never parsed as a header. The bytes after the header stay in the stream.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use proxy_header::{ParseConfig, Protocol, ProxiedAddress, ProxyHeader};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Semaphore,
    time::timeout,
};

/// Longest header, in bytes, TLVs included: the size that the protocol guarantees to fit into one packet.
const HEADER_BYTES_MAX: usize = 536;
/// Longest time until the whole header has arrived; a balancer sends it as soon as it connects.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent connections from balancers whose header is not read yet. After that, a connection counts towards its client's address.
const HEADERLESS_MAX: usize = 1_024;
/// Bytes of a header before its addresses: signature, version and command, address family, and the length of the rest.
const PREFIX_BYTES: usize = 16;
/// Offset of the byte with version and command.
const COMMAND_AT: usize = 12;
/// Version 2 with the command LOCAL: the balancer's own connection, a health check for example.
const LOCAL_COMMAND: u8 = 0x20;

/// Determines the client address of a connection. Cheap to clone; clones share the limit on connections whose header is awaited.
#[derive(Clone, Debug)]
pub struct ProxyProtocol {
    networks: Arc<[IpNet]>,
    headerless: Arc<Semaphore>,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client address of the PROXY header if there is one, otherwise the socket's peer address.
    pub address: IpAddr,
    /// Whether the connection came from one of the configured networks.
    pub is_proxied: bool,
}

/// Why a connection from a balancer is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Too many connections wait for their header.
    #[error("too many proxied connections are waiting for their PROXY header")]
    TooMany,
    /// The header did not arrive in time.
    #[error("the PROXY header did not arrive within {} s", HEADER_TIMEOUT.as_secs())]
    TooSlow,
    /// The connection ended before the header was complete.
    #[error("the connection ended before its PROXY header: {0}")]
    Ended(#[from] std::io::Error),
    /// The header is longer than the limit; carries its length in bytes.
    #[error("the PROXY header has {0} bytes, more than {HEADER_BYTES_MAX}")]
    TooLong(usize),
    /// The bytes are not a PROXY header of version 2, or the header does not describe a TCP connection.
    #[error("the connection does not begin with a PROXY v2 header of a TCP connection")]
    Invalid,
}

impl Default for ProxyProtocol {
    /// Expects headers from no network.
    fn default() -> Self {
        Self::from_networks(Vec::new())
    }
}

impl ProxyProtocol {
    /// Expects a header on every connection from these networks and on no other.
    pub fn from_networks(networks: Vec<IpNet>) -> Self {
        Self { networks: networks.into(), headerless: Arc::new(Semaphore::new(HEADERLESS_MAX)) }
    }

    /// Returns whether connections from this address must begin with a header.
    pub fn is_trusted(&self, from: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&from.to_canonical()))
    }

    /// Returns the client of a connection; reads its header if it must have one. `from` is the socket's peer address.
    pub async fn peer(&self, stream: &mut (impl AsyncRead + Unpin), from: IpAddr) -> Result<Peer, ProxyError> {
        let from = from.to_canonical();
        if !self.is_trusted(from) {
            return Ok(Peer { address: from, is_proxied: false });
        }
        let _counted = self.headerless.try_acquire().map_err(|_| ProxyError::TooMany)?;
        let header = timeout(HEADER_TIMEOUT, read(stream)).await.map_err(|_| ProxyError::TooSlow)??;
        let address = source(&header)?.unwrap_or(from).to_canonical();
        Ok(Peer { address, is_proxied: true })
    }
}

/// Reads exactly the bytes of a header, within [`HEADER_BYTES_MAX`].
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, ProxyError> {
    let mut header = vec![0; PREFIX_BYTES];
    stream.read_exact(&mut header).await?;
    // The prefix is checked before its length field is used; `BufferTooShort` means that it is valid so far.
    match ProxyHeader::parse(&header, ONLY_VERSION_2) {
        Ok(_) | Err(proxy_header::Error::BufferTooShort) => {}
        Err(_) => return Err(ProxyError::Invalid),
    }
    let length = PREFIX_BYTES + usize::from(u16::from_be_bytes([header[PREFIX_BYTES - 2], header[PREFIX_BYTES - 1]]));
    if length > HEADER_BYTES_MAX {
        return Err(ProxyError::TooLong(length));
    }
    header.resize(length, 0);
    stream.read_exact(&mut header[PREFIX_BYTES..]).await?;
    Ok(header)
}

const ONLY_VERSION_2: ParseConfig = ParseConfig { include_tlvs: false, allow_v1: false, allow_v2: true };

/// Returns the client address of a header; `None` for the balancer's own connection (command LOCAL).
fn source(header: &[u8]) -> Result<Option<IpAddr>, ProxyError> {
    let (parsed, _) = ProxyHeader::parse(header, ONLY_VERSION_2).map_err(|_| ProxyError::Invalid)?;
    match parsed.proxied_address() {
        Some(ProxiedAddress { protocol: Protocol::Stream, source, .. }) => Ok(Some(source.ip())),
        None if header[COMMAND_AT] == LOCAL_COMMAND => Ok(None),
        Some(_) | None => Err(ProxyError::Invalid),
    }
}

#[cfg(test)]
mod tests;
