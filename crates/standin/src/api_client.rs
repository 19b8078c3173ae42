//! A small HTTPS client for the two servers the stand-in talks to: the supervisor and the genuine apiserver.
//!
//! One connection, kept and made again when it is gone; every request has a deadline and a size limit. No retries: the
//! callers' loops are the retries, because their pace is part of what the stand-in imitates.

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
/// Above any answer of a cluster of a handful of nodes.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody was reached; the text is what Go's client would say of it.
    #[error("{0}")]
    Unreachable(String),
    /// The server answered, with a status other than success.
    #[error("{status}: {message}")]
    Status { status: StatusCode, message: String },
    /// The answer is not what was asked for.
    #[error("unusable answer: {0}")]
    Answer(String),
}

impl ClientError {
    /// Whether the server answered with `status`.
    pub(crate) fn is(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }
}

/// A server and how to talk to it.
pub(crate) struct Client {
    host: String,
    port: u16,
    /// The name that the server's certificate must hold.
    believed: String,
    tls: Arc<ClientConfig>,
    headers: Vec<(&'static str, String)>,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// What to send; headers of the client are added.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// A client of `host:port` sending `headers` with every request.
    pub(crate) fn new(host: &str, port: u16, tls: Arc<ClientConfig>, headers: Vec<(&'static str, String)>) -> Self {
        let (host, believed) = (host.to_owned(), host.to_owned());
        Self { host, port, believed, tls, headers, connection: Mutex::new(None) }
    }

    /// The same client, to which the server proves another name than the one it is reached by.
    pub(crate) fn believing(self, name: &str) -> Self {
        Self { believed: name.to_owned(), ..self }
    }

    /// The answer's body, or why there is none.
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

    /// A response whose body is read as it comes, on a connection of its own; only its head has a deadline.
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

    /// Sends JSON and returns the JSON answer.
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
                // The kept connection was closed under us and nothing was sent: one more, on a new one.
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
            .header("host", format!("{}:{}", self.host, self.port))
            .header("accept", "application/json, */*")
            .header("user-agent", concat!("rke2-stand-in/", env!("CARGO_PKG_VERSION")))
            .header("content-type", call.content_type);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(Bytes::from(call.body.clone()))).map_err(|error| ClientError::Answer(error.to_string()))
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let target = format!("{}:{}", self.host, self.port);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream =
            stream.map_err(|error| ClientError::Unreachable(format!("dial tcp {target}: {}", go_text(&error))))?;
        // Requests are small and answers are waited for.
        let _ = stream.set_nodelay(true);
        let name =
            ServerName::try_from(self.believed.clone()).map_err(|error| ClientError::Unreachable(error.to_string()))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let stream = stream.map_err(|error| ClientError::Unreachable(format!("tls: {error}")))?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        tokio::spawn(async move {
            // Ends with the connection; the sender learns why.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

fn unreachable(error: &hyper::Error) -> ClientError {
    ClientError::Unreachable(if error.is_incomplete_message() { "EOF".to_owned() } else { error.to_string() })
}

/// The words Go's resolver and dialer use, which are what failure reports quote.
fn go_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// The message of a Kubernetes `Status`, else the beginning of the text.
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

    /// A server whose certificate knows the loopback's address and no name.
    async fn server(ca: &Ca) -> u16 {
        let leaf = ca.issue(&Subject::server("s", vec!["127.0.0.1".to_owned()])).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/ping", get(|| async { "pong" }));
        tokio::spawn(crate::tls::serve(listener, crate::tls::server_config(&leaf, &ca.pem).unwrap(), app));
        port
    }

    #[tokio::test]
    async fn a_server_may_be_reached_by_a_name_that_its_certificate_does_not_know() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let (ca, other) =
            (Ca::load_or_create(&dir.join("a"), "a").unwrap(), Ca::load_or_create(&dir.join("b"), "b").unwrap());
        let port = server(&ca).await;
        let client =
            |ca: &Ca| Client::new("localhost", port, crate::tls::client_config(&ca.pem, None).unwrap(), Vec::new());
        assert!(client(&ca).get("/ping").await.is_err(), "the name is not in the certificate");
        assert_eq!(client(&ca).believing("127.0.0.1").get("/ping").await.unwrap(), "pong");
        assert!(
            client(&other).believing("127.0.0.1").get("/ping").await.is_err(),
            "another CA's server is still refused"
        );
    }
}
