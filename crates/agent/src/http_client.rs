//! One HTTP request over one TLS connection: all that enrollment, renewal and fetching need.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::error::AgentError;

/// Longest time until a connection stands: a host that swallows packets must not keep us from the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Dials `host:port` and proves who is there.
pub(crate) async fn connect(address: &str, tls: ClientConfig) -> Result<TlsStream<TcpStream>, AgentError> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect_at_leisure(address, tls)).await;
    connected.unwrap_or_else(|_| Err(AgentError::Unreachable(format!("{address} does not answer"))))
}

async fn connect_at_leisure(address: &str, tls: ClientConfig) -> Result<TlsStream<TcpStream>, AgentError> {
    let fail =
        |what: &str, error: &dyn std::fmt::Display| AgentError::Unreachable(format!("{what} {address}: {error}"));
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| fail("no server name in", &error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| fail("connect to", &error))?;
    stream.set_nodelay(true).map_err(|error| fail("connect to", &error))?;
    let connected = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
    connected.map_err(|error| skewed(&error).unwrap_or_else(|| fail("TLS with", &error)))
}

/// The failure of a handshake in which the other side's certificate was not in its time by the node's clock.
fn skewed(error: &std::io::Error) -> Option<AgentError> {
    let rustls::Error::InvalidCertificate(why) = error.get_ref()?.downcast_ref::<rustls::Error>()? else { return None };
    let (from, to, way) = match why {
        CertificateError::NotValidYetContext { time, not_before } => (time, not_before, "behind"),
        CertificateError::ExpiredContext { time, not_after } => (not_after, time, "ahead"),
        _ => return None,
    };
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    Some(AgentError::Skewed { seconds, way })
}

/// Sends one HTTP/1.1 request and returns status and body, which is at most `bytes_max` long.
pub(crate) async fn request_once(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<(http::StatusCode, Bytes), AgentError> {
    let fail = |error: &dyn std::fmt::Display| AgentError::Unreachable(error.to_string());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| fail(&error))?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| fail(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), bytes_max).collect().await.map_err(|error| fail(&error))?;
    Ok((status, body.to_bytes()))
}

/// Sends one HTTP/2 request and returns the response with its body still to be read.
pub(crate) async fn request_streamed(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, AgentError> {
    let fail = |error: hyper::Error| AgentError::Unreachable(error.to_string());
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_024 * 1_024)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(fail)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(fail)
}
