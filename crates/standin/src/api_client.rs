//! A small HTTPS client for the stand-in's two servers: the supervisor and the genuine apiserver.
//!
//! Keeps one connection and reopens it when it is closed; limits every request in time and every response body in size.
//! Does not retry failed requests: the callers do, because RKE2's retry intervals are part of what the stand-in imitates.
//! The exception is a request that was not sent because the kept connection had been closed.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Larger than any response in a cluster of a few nodes.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// The reason why a request has no usable response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No response was received; the text imitates that of Go's HTTP client.
    #[error("{0}")]
    Unreachable(String),
    /// The server responded with a status other than 2xx.
    #[error("{status}: {message}")]
    Status { status: StatusCode, message: String },
    /// The body could not be read, is too large or is not the expected JSON, or the request could not be built.
    #[error("invalid response: {0}")]
    Answer(String),
}

impl ClientError {
    /// Whether the server answered with `status`.
    pub(crate) fn is(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }
}

/// A client of one server.
pub(crate) struct Client {
    host: String,
    port: u16,
    /// The name that the server's certificate must contain.
    server_name: String,
    tls: Arc<ClientConfig>,
    headers: Vec<(&'static str, String)>,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// One request, without the headers that the client adds.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Creates a client of `host:port` that sends `headers` with every request.
    pub(crate) fn new(host: &str, port: u16, tls: Arc<ClientConfig>, headers: Vec<(&'static str, String)>) -> Self {
        let (host, server_name) = (host.to_owned(), host.to_owned());
        Self { host, port, server_name, tls, headers, connection: Mutex::new(None) }
    }

    /// Verifies the server's certificate for `name` instead of for the host that the client connects to.
    pub(crate) fn with_server_name(self, name: &str) -> Self {
        Self { server_name: name.to_owned(), ..self }
    }

    /// Sends a request and returns the body of a successful response.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Bytes, ClientError> {
        let work = async {
            let mut connection = self.connection.lock().await;
            let response = self.send(&mut connection, &call).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| ClientError::Answer(error.to_string()))?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(ClientError::Status { status, message: message_of(&body) }) }
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
            Ok(result) => result,
            Err(_) => {
                // The half-used connection must not serve the next request.
                *self.connection.lock().await = None;
                Err(ClientError::Unreachable("context deadline exceeded".to_owned()))
            }
        }
    }

    /// Returns a response whose body is streamed over a separate connection. Only the response head has a deadline.
    pub(crate) async fn stream(&self, path: &str) -> Result<Incoming, ClientError> {
        let call = Call { method: Method::GET, path, content_type: "application/json", body: Vec::new() };
        let mut connection = None;
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, self.send(&mut connection, &call)).await;
        let response = sent.map_err(|_| ClientError::Unreachable("context deadline exceeded".to_owned()))??;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => Err(ClientError::Status { status, message: String::new() }),
        }
    }

    /// `GET` as bytes.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, ClientError> {
        self.call(Call { method: Method::GET, path, content_type: "application/json", body: Vec::new() }).await
    }

    /// `GET` as JSON.
    pub(crate) async fn get_json(&self, path: &str) -> Result<Value, ClientError> {
        parse(&self.get(path).await?)
    }

    /// Sends `body` as JSON and returns the JSON response. `PATCH` sends a strategic merge patch.
    pub(crate) async fn send_json(&self, method: Method, path: &str, body: &Value) -> Result<Value, ClientError> {
        let content_type =
            if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
        parse(&self.call(Call { method, path, content_type, body: body.to_string().into_bytes() }).await?)
    }

    async fn send(
        &self,
        connection: &mut Option<SendRequest<Full<Bytes>>>,
        call: &Call<'_>,
    ) -> Result<http::Response<Incoming>, ClientError> {
        let mut sender = match connection.take() {
            None => self.dial().await?,
            Some(mut kept) => {
                if kept.ready().await.is_ok() {
                    kept
                } else {
                    self.dial().await?
                }
            }
        };
        let response = sender.send_request(self.request(call)?).await;
        match response {
            Ok(response) => {
                *connection = Some(sender);
                Ok(response)
            }
            Err(error) if error.is_canceled() => {
                // The server had closed the kept connection and nothing was sent: repeat once on a new connection.
                let mut sender = self.dial().await?;
                let response = sender.send_request(self.request(call)?).await.map_err(|e| unreachable(&e))?;
                *connection = Some(sender);
                Ok(response)
            }
            Err(error) => Err(unreachable(&error)),
        }
    }

    fn request(&self, call: &Call<'_>) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header("host", join_host_port(&self.host, self.port))
            .header("accept", "application/json, */*")
            .header("user-agent", concat!("rke2-stand-in/", env!("CARGO_PKG_VERSION")))
            .header("content-type", call.content_type);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(Bytes::from(call.body.clone()))).map_err(|error| ClientError::Answer(error.to_string()))
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let target = join_host_port(&self.host, self.port);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream =
            stream.map_err(|error| ClientError::Unreachable(format!("dial tcp {target}: {}", go_text(&error))))?;
        // Requests are small, and the caller waits for each response.
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(self.server_name.clone())
            .map_err(|error| ClientError::Unreachable(error.to_string()))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let stream = stream.map_err(|error| ClientError::Unreachable(format!("tls: {error}")))?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        tokio::spawn(async move {
            // Ends with the connection; the sender reports the error.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// Joins a host and a port as Go's `net.JoinHostPort` does: an IPv6 address gets brackets.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn unreachable(error: &hyper::Error) -> ClientError {
    ClientError::Unreachable(if error.is_incomplete_message() { "EOF".to_owned() } else { error.to_string() })
}

/// The error texts of Go's dialer, which RKE2's logs and public failure reports contain.
fn go_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// The message of a Kubernetes `Status`, or the first 200 bytes of any other body.
fn message_of(body: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned())
}

fn parse(body: &[u8]) -> Result<Value, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::Answer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use camino::Utf8Path;
    use tokio::net::TcpListener;

    use super::*;
    use crate::pki::{Ca, Subject};

    /// A server whose certificate contains the loopback address and no DNS name.
    async fn server(ca: &Ca) -> u16 {
        let leaf = ca.issue(&Subject::server("s", vec!["127.0.0.1".to_owned()])).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/ping", get(|| async { "pong" }));
        tokio::spawn(crate::tls::serve(listener, crate::tls::server_config(&leaf, &ca.pem).unwrap(), app));
        port
    }

    #[test]
    fn ipv6_address_gets_brackets_before_a_port() {
        let joined = ["fd00::7", "127.0.0.1", "cp.example"].map(|host| join_host_port(host, 9345));
        assert_eq!(joined, ["[fd00::7]:9345", "127.0.0.1:9345", "cp.example:9345"]);
    }

    #[tokio::test]
    async fn server_may_have_another_name_than_its_certificate() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let (ca, other) =
            (Ca::load_or_create(&dir.join("a"), "a").unwrap(), Ca::load_or_create(&dir.join("b"), "b").unwrap());
        let port = server(&ca).await;
        let client =
            |ca: &Ca| Client::new("localhost", port, crate::tls::client_config(&ca.pem, None).unwrap(), Vec::new());
        assert!(client(&ca).get("/ping").await.is_err(), "the name is not in the certificate");
        assert_eq!(client(&ca).with_server_name("127.0.0.1").get("/ping").await.unwrap(), "pong");
        assert!(
            client(&other).with_server_name("127.0.0.1").get("/ping").await.is_err(),
            "another CA's server is still refused"
        );
    }
}
