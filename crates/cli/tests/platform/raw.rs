//! HTTP requests as any other client may send them, with any method, headers and body.

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

use crate::world::{Platform, WAIT_MAX};

/// An HTTP response with its JSON body.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl HttpResponse {
    /// Returns the stable code of a problem document.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// Connects to the platform. Returns the address and the TLS stream.
pub(crate) async fn connect(platform: &Platform) -> (String, TlsStream<TcpStream>) {
    connect_to(&platform.ready()).await
}

/// Connects to the control plane that the ready file describes.
async fn connect_to(ready: &Value) -> (String, TlsStream<TcpStream>) {
    let address = address_of(ready);
    let stream = TcpStream::connect(address).await.expect("connected");
    let stream = tls_handshake(ready, stream).await.expect("TLS");
    (address.to_string(), stream)
}

/// Returns the address on which a control plane's API listens.
pub(crate) fn address_of(ready: &Value) -> SocketAddr {
    let address = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL");
    address.parse().expect("an address")
}

/// Performs the TLS handshake on a connection to a control plane.
pub(crate) async fn tls_handshake(ready: &Value, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let authority = std::fs::read(ready["ca_file"].as_str().expect("a path")).expect("the authority");
    let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
    let tls = pinned_client_config(&sha256_hex(&authority)).expect("a configuration");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    TlsConnector::from(Arc::new(tls)).connect(name, stream).await
}

/// Sends a GET request on the given connection.
pub(crate) async fn read_on(stream: TlsStream<TcpStream>, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    exchange(("x".to_owned(), stream), Method::GET, path, headers, "").await
}

/// Writes a whole request before it reads, as a simple client does. Returns the text of the response.
pub(crate) async fn write_then_read(platform: &Platform, head: &str, body: &[u8]) -> String {
    let (address, mut stream) = connect(platform).await;
    let length = body.len();
    let head = format!("{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    stream.write_all(body).await.expect("the body is sent");
    stream.flush().await.expect("the body is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// Writes `text` and returns all that the server sends until the connection ends or [`WAIT_MAX`] is over.
pub(crate) async fn write_then_wait(platform: &Platform, text: &str) -> String {
    let (_, mut stream) = connect(platform).await;
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(WAIT_MAX, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends one request with `host` and these headers on a new connection.
pub(crate) async fn send(
    platform: &Platform,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<hyper::body::Bytes>,
) -> HttpResponse {
    exchange(connect(platform).await, method, path, headers, body).await
}

/// Sends a GET request without a token to the control plane that the ready file describes.
pub(crate) async fn read_open(ready: &Value, path: &str) -> HttpResponse {
    exchange(connect_to(ready).await, Method::GET, path, &[], "").await
}

/// A request whose headers are sent; the server waits for the body.
pub(crate) struct BegunRequest(TlsStream<TcpStream>, String);

/// Sends the headers of a POST and waits until the server asks for the body with `100 Continue`.
pub(crate) async fn begin(ready: &Value, path: &str, body: &str) -> BegunRequest {
    let (address, mut stream) = connect_to(ready).await;
    let (token, length) = (ready["token"].as_str().expect("a token"), body.len());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    BegunRequest(stream, body.to_owned())
}

impl BegunRequest {
    /// Sends the body and returns the status line of the response.
    pub(crate) async fn finish(self) -> String {
        let Self(mut stream, body) = self;
        stream.write_all(body.as_bytes()).await.expect("the body is sent");
        let mut answer = Vec::new();
        // The connection may end with an error after the response.
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
) -> HttpResponse {
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
    HttpResponse {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    }
}

/// Returns the `Authorization` value of the platform admin.
pub(crate) fn bearer(platform: &Platform) -> String {
    format!("Bearer {}", platform.ready()["token"].as_str().expect("a token"))
}
