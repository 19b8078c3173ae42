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
