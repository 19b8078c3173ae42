//! Clients that send requests and never read, crowds that take every connection, and clients behind a load balancer.

use std::{
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::client::TlsStream;

use crate::{
    raw::{HttpResponse, address_of, bearer, read_on, send, tls_handshake},
    world::{Platform, eventually, show},
};

/// The server closes a connection after its client read nothing for this long, so the test takes at least as long. The same as
/// `STALLED_AFTER` in `crates/server/src/progress.rs`.
const STALLED_AFTER: Duration = Duration::from_secs(30);
const PACKAGE: &str = "large.deb";
const PACKAGE_BYTES: u64 = 256 * 1_024 * 1_024;

/// Returns the loopback address `127.A.0.B`.
fn loopback(second: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, second, 0, last)
}

/// Connects from that address, with a receive buffer of 4 KiB, so that little unread data fits.
async fn connect(ready: &Value, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 * 1_024).expect("set");
    socket.bind((from, 0).into()).expect("an address of the loopback");
    socket.connect(address_of(ready)).await.expect("connected")
}

/// Returns the header that a load balancer sends for `client`: PROXY protocol, version 2, TCP over IPv4.
fn header(client: Ipv4Addr) -> Vec<u8> {
    let (signature, to) = (b"\r\n\r\n\0\r\nQUIT\n", Ipv4Addr::LOCALHOST.octets());
    [&signature[..], &[0x21, 0x11, 0, 12], &client.octets(), &to, &5_000_u16.to_be_bytes(), &443_u16.to_be_bytes()]
        .concat()
}

/// Opens a connection that a load balancer at `from` forwards for `client`.
async fn connect_proxied(ready: &Value, from: Ipv4Addr, client: Ipv4Addr) -> TcpStream {
    let mut stream = connect(ready, from).await;
    stream.write_all(&header(client)).await.expect("written");
    stream
}

/// Counts the API's established connections from addresses of `127.second.0.0/16`, as listed by the kernel.
fn connections_from(ready: &Value, second: u8) -> usize {
    let port = format!(":{:04X}", address_of(ready).port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let of_network = format!("{second:02X}7F:");
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Addresses are in little-endian byte order: 127.A.0.B is BB00AA7F.
    lines.filter(|of| of.len() > 3 && of[1].ends_with(&port) && of[2].contains(&of_network) && of[3] == "01").count()
}

fn memory(ready: &Value) -> String {
    let pid = &ready["replicas"][0]["pid"];
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server's status");
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).expect("its memory").to_owned();
    let sockets = std::fs::read_to_string("/proc/net/sockstat").expect("the kernel's figures");
    format!("{resident}; {}", sockets.lines().find(|line| line.starts_with("TCP:")).expect("TCP"))
}

fn write_large_package(folder: &Path) {
    let file = std::fs::File::create(folder.join(PACKAGE)).expect("made");
    file.set_len(PACKAGE_BYTES).expect("a sparse file");
    std::fs::write(folder.join("SHA256SUMS"), format!("{}  {PACKAGE}\n", "ab".repeat(32))).expect("written");
}

/// Requests the path eight times and never reads the answers.
async fn request_and_never_read(ready: &Value, from: Ipv4Addr, path: &str) -> TlsStream<TcpStream> {
    let mut stream = tls_handshake(ready, connect(ready, from).await).await.expect("TLS");
    let ask = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").repeat(8);
    stream.write_all(ask.as_bytes()).await.expect("written");
    stream
}

async fn read_from(ready: &Value, from: Ipv4Addr, path: &str) -> HttpResponse {
    read_on(tls_handshake(ready, connect(ready, from).await).await.expect("TLS"), path, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_are_disconnected_and_use_little_memory() {
    const ATTACKERS: u8 = 9;
    let packages = tempfile::tempdir().expect("a folder");
    write_large_package(packages.path());
    let folder = packages.path().to_str().expect("a text");
    let platform = Platform::start_with(0, &[("GPUAAS_PACKAGES_DIR", folder)]);
    let (ready, package) = (platform.ready(), format!("/install/packages/{PACKAGE}"));
    show(&format!("memory: clients that never read, before: {}", memory(&ready)));
    let began = Instant::now();
    let mut unread = Vec::new();
    for last in 1..=ATTACKERS {
        for path in [&package, "/api/v1/openapi.json"] {
            let asks = (0..32).map(|_| request_and_never_read(&ready, loopback(201, last), path));
            unread.extend(futures::future::join_all(asks).await);
        }
    }
    // `DOWNLOADS_MAX` allows 32 responses per address and 256 in all: of 9 × 32, the server has ended 32.
    let standing = connections_from(&ready, 201);
    assert!(standing >= 256, "{standing}");
    show(&format!("memory: {standing} connections that read nothing: {}", memory(&ready)));
    let whoami = send(&platform, Method::GET, "/api/v1/whoami", &[("authorization", &bearer(&platform))], "").await;
    assert_eq!(whoami.status, 200, "{whoami:?}");
    let refused = read_from(&ready, loopback(201, 1), "/install.sh").await;
    assert_eq!((refused.status, refused.code()), (429, "rate_limited"), "the downloads of one address are not limited");
    assert_eq!(refused.headers["retry-after"], "5");
    let taken = read_from(&ready, loopback(202, 1), "/install.sh").await;
    assert_eq!(taken.status, 200, "another address is not served: {taken:?}");
    eventually("clients that never read stay connected", async || connections_from(&ready, 201) == 0).await;
    show(&format!("memory: after {:?}: {}", began.elapsed(), memory(&ready)));
    assert!(began.elapsed() > STALLED_AFTER, "they were disconnected too early");
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_take_all_connections_do_not_block_others() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the limit is raised");
    let platform = Platform::start(0);
    let ready = platform.ready();
    let mut held = Vec::new();
    for last in 1..=17 {
        let connects = (0..256).map(|_| connect(&ready, loopback(203, last)));
        held.extend(futures::future::join_all(connects).await);
    }
    for last in 1..=20 {
        let answer = read_from(&ready, loopback(204, last), "/livez").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // Some of the opened connections still wait in the kernel to be accepted or refused.
    let (standing, held_by_us) = (connections_from(&ready, 203), held.len());
    println!("{held_by_us} were opened, {standing} are established");
    assert!(standing < held_by_us);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_header_is_trusted_only_from_its_network_and_its_clients_count_separately() {
    let settings = [("GPUAAS_PROXY_PROTOCOL_FROM", "127.205.0.0/16"), ("GPUAAS_REQUESTS_PER_ADDRESS", "1")];
    let platform = Platform::start_with(0, &settings);
    let ready = platform.ready();
    let (balancer, elsewhere) = (loopback(205, 1), loopback(206, 1));
    let [hostile, honest] = [7, 8].map(|last| Ipv4Addr::new(198, 51, 100, last));
    let bare = connect(&ready, balancer).await;
    assert!(tls_handshake(&ready, bare).await.is_err(), "a connection from the load balancer works without a header");
    let forged = connect_proxied(&ready, elsewhere, honest).await;
    assert!(tls_handshake(&ready, forged).await.is_err(), "a header from another network is accepted");
    let ask = async |client| {
        let stream = connect_proxied(&ready, balancer, client).await;
        read_on(tls_handshake(&ready, stream).await.expect("TLS"), "/api/v1/openapi.json", &[]).await.status
    };
    let mut asked = 0;
    while ask(hostile).await == 200 {
        asked += 1;
        assert!(asked < 100, "the client in the header is never limited");
    }
    assert_eq!(ask(honest).await, 200, "another client behind the same load balancer is limited too");
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(connect_proxied(&ready, balancer, hostile).await);
    }
    assert_eq!(ask(honest).await, 200, "connections of another client lock it out");
    eventually("one client behind a load balancer exceeds the connection limit", async || {
        connections_from(&ready, 205) <= 256
    })
    .await;
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_without_a_token_need_a_direct_loopback_connection() {
    let settings = [("GPUAAS_PROXY_PROTOCOL_FROM", "127.205.0.0/16"), ("GPUAAS_METRICS_OVER_LOOPBACK", "true")];
    let platform = Platform::start_with(0, &settings);
    let ready = platform.ready();
    let read = async |stream| read_on(tls_handshake(&ready, stream).await.expect("TLS"), "/metrics", &[]).await.status;
    assert_eq!(read(connect(&ready, loopback(1, 1)).await).await, 200, "this machine");
    for client in [Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::LOCALHOST] {
        let passed_on = connect_proxied(&ready, loopback(205, 1), client).await;
        assert_eq!(read(passed_on).await, 401, "{client} behind a load balancer");
    }
}
