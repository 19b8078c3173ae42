//! Requests as somebody else's program sends them: any method, header and body.

use std::{net::SocketAddr, sync::Arc};

use gpuaas_trust::{pinned_client_config, sha256_hex};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::world::{PATIENCE, Platform};

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The stable code of a problem document.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// Connects to it, and says by which address.
pub(crate) async fn connect(platform: &Platform) -> (String, TlsStream<TcpStream>) {
    connect_to(&platform.ready()).await
}

/// Connects to the control plane that a ready file tells of.
async fn connect_to(ready: &Value) -> (String, TlsStream<TcpStream>) {
    let address = address_of(ready);
    let stream = TcpStream::connect(address).await.expect("connected");
    let stream = shake(ready, stream).await.expect("TLS");
    (address.to_string(), stream)
}

/// Where the API of a control plane listens.
pub(crate) fn address_of(ready: &Value) -> SocketAddr {
    let address = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL");
    address.parse().expect("an address")
}

/// Speaks TLS on a connection to a control plane.
pub(crate) async fn shake(ready: &Value, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
    let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
    let tls = pinned_client_config(&sha256_hex(&authority)).expect("a configuration");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    TlsConnector::from(Arc::new(tls)).connect(name, stream).await
}

/// Reads something on a connection of one's own.
pub(crate) async fn read_on(stream: TlsStream<TcpStream>, path: &str, headers: &[(&str, &str)]) -> Answer {
    exchange(("x".to_owned(), stream), Method::GET, path, headers, "").await
}

/// Writes a whole request, reads nothing before, and gives the answer's text: what a simple client does.
pub(crate) async fn write_then_read(platform: &Platform, head: &str, body: &[u8]) -> String {
    let (address, mut stream) = connect(platform).await;
    let length = body.len();
    let head = format!("{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("the head is taken");
    stream.write_all(body).await.expect("the body is taken");
    stream.flush().await.expect("the body is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// Writes something and gives what comes back until the other side closes, however it does, or for as long as there is patience.
pub(crate) async fn write_then_wait(platform: &Platform, text: &str) -> String {
    let (_, mut stream) = connect(platform).await;
    // The other side may have had enough before it has all of it.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends one request with exactly these headers, and the admin's token where `token` is given so.
pub(crate) async fn send(
    platform: &Platform,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<hyper::body::Bytes>,
) -> Answer {
    exchange(connect(platform).await, method, path, headers, body).await
}

/// Reads what anybody may read at the control plane that a ready file tells of.
pub(crate) async fn read_open(ready: &Value, path: &str) -> Answer {
    exchange(connect_to(ready).await, Method::GET, path, &[], "").await
}

/// A request of whose body only the length is told: the other side has begun to wait for it.
pub(crate) struct Begun(TlsStream<TcpStream>, String);

/// Begins a POST, up to where the other side asks for its body.
pub(crate) async fn begin(ready: &Value, path: &str, body: &str) -> Begun {
    let (address, mut stream) = connect_to(ready).await;
    let (token, length) = (ready["token"].as_str().expect("a token"), body.len());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("the head is taken");
    let mut told = [0; 25];
    stream.read_exact(&mut told).await.expect("an interim answer");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    Begun(stream, body.to_owned())
}

impl Begun {
    /// Sends the body, and gives the first line of what comes back.
    pub(crate) async fn go_on(self) -> String {
        let Self(mut stream, body) = self;
        stream.write_all(body.as_bytes()).await.expect("the body is taken");
        let mut answer = Vec::new();
        // However the connection ends: what counts was told before.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }
}

async fn exchange(
    (address, stream): (String, TlsStream<TcpStream>),
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<hyper::body::Bytes>,
) -> Answer {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", &address);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(body.into())).expect("a request")).await;
    let (parts, body) = response.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    }
}

/// `Authorization` of the platform admin.
pub(crate) fn bearer(platform: &Platform) -> String {
    format!("Bearer {}", platform.ready()["token"].as_str().expect("a token"))
}
