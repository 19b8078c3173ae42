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
mod tests {
    use tokio::{io::AsyncWriteExt, time::Instant};

    use super::*;

    const BALANCER: [u8; 4] = [192, 0, 2, 7];

    fn header(source: &str) -> Vec<u8> {
        let to = if source.starts_with('[') { "[2001:db8::1]:443" } else { "192.0.2.1:443" };
        let address = ProxiedAddress::stream(source.parse().unwrap(), to.parse().unwrap());
        let mut bytes = Vec::new();
        ProxyHeader::with_address(address).encode_v2(&mut bytes).unwrap();
        bytes
    }

    fn changed(at: usize, to: u8) -> Vec<u8> {
        let mut bytes = header("198.51.100.7:5000");
        bytes[at] = to;
        bytes
    }

    fn proxies() -> ProxyProtocol {
        ProxyProtocol::from_networks(vec!["192.0.2.0/29".parse().unwrap()])
    }

    /// Returns the client of a connection that begins with `bytes`, and the bytes that are left unread.
    async fn peer(from: impl Into<IpAddr>, bytes: &[u8]) -> (Result<Peer, ProxyError>, Vec<u8>) {
        let mut stream = bytes;
        let peer = proxies().peer(&mut stream, from.into()).await;
        (peer, stream.to_vec())
    }

    #[tokio::test]
    async fn proxy_header_names_the_client_and_the_rest_is_left_unread() {
        for (source, address) in [
            ("198.51.100.7:5000", "198.51.100.7"),
            ("[2001:db8::7]:1", "2001:db8::7"),
            ("[::ffff:198.51.100.7]:1", "198.51.100.7"),
        ] {
            let (peer, rest) = peer(BALANCER, &[header(source), b"GET".to_vec()].concat()).await;
            assert_eq!(peer.unwrap(), Peer { address: address.parse().unwrap(), is_proxied: true });
            assert_eq!(rest, b"GET");
        }
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert!(peer(mapped, &header("198.51.100.7:5000")).await.0.unwrap().is_proxied);
    }

    #[tokio::test]
    async fn balancer_may_connect_for_itself() {
        let mut local = Vec::new();
        ProxyHeader::with_local().encode_v2(&mut local).unwrap();
        assert_eq!(peer(BALANCER, &local).await.0.unwrap(), Peer { address: BALANCER.into(), is_proxied: true });
    }

    #[tokio::test]
    async fn headers_from_untrusted_addresses_are_not_parsed() {
        let (direct, rest) = peer([192, 0, 2, 8], &header("198.51.100.7:5000")).await;
        assert_eq!(direct.unwrap(), Peer { address: [192, 0, 2, 8].into(), is_proxied: false });
        assert_eq!(rest, header("198.51.100.7:5000"));
    }

    #[tokio::test]
    async fn invalid_proxy_headers_are_refused() {
        let long = [&header("198.51.100.7:5000")[..14], &521_u16.to_be_bytes(), &[0; 600]].concat();
        for (bytes, why) in [
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03................".to_vec(), "it is TLS"),
            (b"PROXY TCP4 198.51.100.7 192.0.2.1 5000 443\r\n".to_vec(), "it is version 1"),
            (header("198.51.100.7:5000")[..20].to_vec(), "it is truncated"),
            (changed(12, 0x31), "its version is 3"),
            (changed(12, 0x22), "its command is unknown"),
            (changed(13, 0x12), "it is of UDP"),
            (changed(13, 0x31), "its addresses are too short for socket paths"),
            (changed(13, 0x00), "it names no address"),
            (changed(15, 11), "its address is too short"),
            (long, "it is too long"),
        ] {
            assert!(peer(BALANCER, &bytes).await.0.is_err(), "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn missing_header_times_out_and_waiting_connections_are_limited() {
        let (proxies, began) = (proxies(), Instant::now());
        let (mut near, mut far) = tokio::io::duplex(64);
        near.write_all(&header("198.51.100.7:5000")[..20]).await.unwrap();
        let waiting = proxies.peer(&mut far, BALANCER.into()).await;
        assert!(matches!(waiting, Err(ProxyError::TooSlow)));
        assert_eq!(began.elapsed(), HEADER_TIMEOUT);
        let _all = proxies.headerless.acquire_many(u32::try_from(HEADERLESS_MAX).unwrap()).await.unwrap();
        let refused = proxies.peer(&mut &header("198.51.100.7:5000")[..], BALANCER.into()).await;
        assert!(matches!(refused, Err(ProxyError::TooMany)));
        assert!(proxies.peer(&mut &b""[..], [192, 0, 2, 8].into()).await.is_ok(), "other connections do not wait");
    }
}
