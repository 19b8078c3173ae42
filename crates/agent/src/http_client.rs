//! One HTTP request per TLS connection, for enrollment, renewal and fetching.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::error::AgentError;

/// Longest time to establish a connection: an address that drops packets must not delay the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time until a response begins, and until a short one is complete: equal to the time that a control plane waits for its own
/// database.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time between two chunks of a streamed response.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to `host:port` and verifies its certificate.
pub(crate) async fn connect(address: &str, tls: ClientConfig) -> Result<TlsStream<TcpStream>, AgentError> {
    let connected = timeout(CONNECT_TIMEOUT, connect_without_timeout(address, tls)).await;
    connected.unwrap_or_else(|_| Err(AgentError::Unreachable(format!("{address} did not respond in time"))))
}

async fn connect_without_timeout(address: &str, tls: ClientConfig) -> Result<TlsStream<TcpStream>, AgentError> {
    let fail =
        |what: &str, error: &dyn std::fmt::Display| AgentError::Unreachable(format!("{what} {address}: {error}"));
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| fail("invalid server name in", &error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| fail("connect to", &error))?;
    stream.set_nodelay(true).map_err(|error| fail("connect to", &error))?;
    let connected = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
    connected.map_err(|error| clock_skew_error(&error).unwrap_or_else(|| fail("TLS with", &error)))
}

/// Returns the error for a certificate that is expired or not yet valid by the node's clock; `None` for any other failure.
fn clock_skew_error(error: &std::io::Error) -> Option<AgentError> {
    let rustls::Error::InvalidCertificate(why) = error.get_ref()?.downcast_ref::<rustls::Error>()? else { return None };
    let (from, to, way) = match why {
        CertificateError::NotValidYetContext { time, not_before } => (time, not_before, "behind"),
        CertificateError::ExpiredContext { time, not_after } => (not_after, time, "ahead"),
        _ => return None,
    };
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    Some(AgentError::Skewed { seconds, way })
}

/// Sends one HTTP/1.1 request and returns status and body; a body of more than `bytes_max` bytes is an error.
pub(crate) async fn request_once<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<(StatusCode, Bytes), AgentError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    with_timeout(Box::pin(async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(unreachable)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), bytes_max).collect().await.map_err(unreachable)?;
        Ok((status, body.to_bytes()))
    }))
    .await
}

/// Sends one HTTP/2 request and returns the response; the caller reads the body, complete or in chunks.
pub(crate) async fn request_streamed<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, AgentError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    with_timeout(Box::pin(async {
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1_024 * 1_024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(unreachable)?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(unreachable)
    }))
    .await
}

/// Reads a complete body; one of more than `bytes_max` bytes is an error.
pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, AgentError> {
    with_timeout(async { Ok(Limited::new(body, bytes_max).collect().await.map_err(unreachable)?.to_bytes()) }).await
}

/// Reads the next chunk of a body of any length; `None` at its end.
pub(crate) async fn next_chunk<B>(body: &mut B) -> Result<Option<Bytes>, AgentError>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        let frame = timeout(CHUNK_TIMEOUT, body.frame()).await.map_err(|_| unreachable("the response stalled"))?;
        match frame.transpose().map_err(unreachable)? {
            None => return Ok(None),
            Some(frame) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_trailers) => continue,
            },
        }
    }
}

/// Waits for a response for at most [`RESPONSE_TIMEOUT`]. Callers box a future that begins with a handshake, because it is large.
async fn with_timeout<T>(response: impl Future<Output = Result<T, AgentError>>) -> Result<T, AgentError> {
    timeout(RESPONSE_TIMEOUT, response).await.unwrap_or_else(|_| Err(unreachable("no response in time")))
}

fn unreachable(error: impl std::fmt::Display) -> AgentError {
    AgentError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests;
