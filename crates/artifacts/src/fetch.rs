//! Fetches files from a web server: HTTP/1.1 over TLS.
//!
//! Guarantees:
//! - Every server, including those behind a redirect, is allowed by [`crate::egress`] and authenticated by TLS.
//! - The reason why a server was not reached is only logged; the caller gets the same error for every reason.
//! - URLs appear in no log and no error, because release servers put signatures into them; the log names only host and port.

use std::{io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{
    HeaderMap, Request, Response, StatusCode, Uri,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HOST, LOCATION, RANGE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::TlsConnector;

use crate::{egress::EgressPolicy, error::ArtifactError};

/// Path of the system's CA bundle on Debian and its derivatives.
pub const SYSTEM_CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest chain of redirects; a release on a code forge takes one or two.
const REDIRECTS_MAX: usize = 3;
const HTTPS_PORT: u16 = 443;
/// Longest time for connecting, the TLS handshake and the response head together.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A body without a new byte for this long counts as broken off.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A response with a file, or with the rest of one.
pub(crate) struct Fetched {
    /// Offset in the file at which `body` begins: the requested one, or 0 if the server cannot continue.
    pub(crate) offset: u64,
    /// Length of the whole file, if the server sends it.
    pub(crate) total_bytes: Option<u64>,
    /// Bytes of the file from `offset` on.
    pub(crate) body: BoxStream<'static, io::Result<Bytes>>,
}

impl Fetched {
    /// Returns whether `have` bytes are the whole file.
    pub(crate) fn is_complete_at(&self, have: u64) -> bool {
        have > 0 && self.total_bytes == Some(have)
    }
}

/// Why a fetch failed. The texts contain no URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The server has no such file.
    #[error("the server has no such file")]
    Absent,
    /// Permanent: retrying does not help.
    #[error("{0}")]
    Refused(String),
    /// Transient: retrying may help.
    #[error("{0}")]
    Broken(String),
    /// A server was not reached, not allowed or not authenticated. The log has the reason.
    #[error("the server was not reached")]
    Unreachable,
}

/// A client that fetches files.
#[async_trait]
pub(crate) trait Fetch: Send + Sync {
    /// Fetches the file at `url` from byte `offset` on.
    async fn get(&self, url: &str, offset: u64) -> Result<Fetched, FetchError>;
}

/// Fetches over the network. Does not use HTTP proxies.
pub(crate) struct HttpFetch {
    tls: TlsConnector,
    egress: EgressPolicy,
}

impl HttpFetch {
    /// Trusts the certificate authorities of a PEM file, for example [`SYSTEM_CA_BUNDLE`], and connects only where `egress` allows it.
    pub(crate) fn trusting(ca_bundle: &Path, egress: EgressPolicy) -> Result<Self, ArtifactError> {
        let failed = |error: &dyn std::fmt::Display| ArtifactError::Store(format!("{}: {error}", ca_bundle.display()));
        let mut roots = rustls::RootCertStore::empty();
        let all = CertificateDer::pem_file_iter(ca_bundle).map_err(|error| failed(&error))?;
        roots.add_parsable_certificates(all.filter_map(Result::ok));
        if roots.is_empty() {
            return Err(failed(&"it contains no certificate authority"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), egress })
    }

    async fn request(&self, uri: &Uri, offset: u64) -> Result<Response<Incoming>, FetchError> {
        let host = uri.host().ok_or_else(|| FetchError::Refused("the URL has no host".into()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(HTTPS_PORT);
        let unreached = |what: &str, error: &dyn std::fmt::Display| {
            tracing::warn!(host, port, what, %error, "a release's server was not reached");
            FetchError::Unreachable
        };
        let stream = self.egress.connect(host, port).await.map_err(|error| unreached("cannot connect", &error))?;
        let mut request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(HOST, uri.authority().map_or(host, |authority| authority.as_str()))
            .header(USER_AGENT, "gpuaas")
            // Any other encoding would change the bytes and the offsets.
            .header(ACCEPT_ENCODING, "identity");
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let request = request.body(Empty::new()).map_err(|error| FetchError::Refused(error.to_string()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unreached("no server name", &error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| unreached("no TLS connection", &error))?;
        exchange(stream, request).await.map_err(|error| unreached("no response", &error))
    }
}

#[async_trait]
impl Fetch for HttpFetch {
    async fn get(&self, url: &str, offset: u64) -> Result<Fetched, FetchError> {
        let mut uri = parse_url(url).map_err(refused)?;
        for _ in 0..=REDIRECTS_MAX {
            let answer = tokio::time::timeout(HEAD_TIMEOUT, self.request(&uri, offset)).await;
            let answer = answer.unwrap_or_else(|_| {
                tracing::warn!(host = uri.host(), "a release's server did not respond in time");
                Err(FetchError::Unreachable)
            })?;
            if !answer.status().is_redirection() {
                return accept_response(answer, offset);
            }
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.ok_or_else(|| FetchError::Refused("a redirect without a location".into()))?;
            uri = parse_url(&absolute(&uri, to)).map_err(refused)?;
        }
        Err(FetchError::Refused(format!("more than {REDIRECTS_MAX} redirects")))
    }
}

/// Parses a URL from which a release may be fetched; the error is the reason why it is refused.
pub(crate) fn parse_url(url: &str) -> Result<Uri, &'static str> {
    let uri: Uri = url.parse().map_err(|_| "this is not a URL")?;
    if uri.scheme_str() != Some("https") {
        return Err("only https URLs are allowed, also in redirects");
    }
    let authority = uri.authority().ok_or("the URL names no server")?;
    if authority.as_str().contains('@') {
        return Err("a URL must not contain a user name, which would appear in logs");
    }
    if uri.port_u16().is_none() && authority.as_str() != authority.host() {
        return Err("the port is not a number from 0 to 65535");
    }
    Ok(uri)
}

fn refused(why: &str) -> FetchError {
    FetchError::Refused(why.to_owned())
}

/// Completes a `Location` without scheme and host with those of `from`.
fn absolute(from: &Uri, to: &str) -> String {
    match (to.starts_with('/'), from.scheme_str(), from.authority()) {
        (true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{to}"),
        _ => to.to_owned(),
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the response's body ends or is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a download's connection ended");
        }
    });
    sender.send_request(request).await
}

fn accept_response(answer: Response<Incoming>, requested_offset: u64) -> Result<Fetched, FetchError> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let (offset, total_bytes) = match status {
        StatusCode::OK => (0, number(&headers, CONTENT_LENGTH.as_str())),
        StatusCode::PARTIAL_CONTENT => range(&headers)
            .filter(|(start, _)| *start == requested_offset)
            .ok_or_else(|| FetchError::Refused("the server sent another range than requested".into()))?,
        // `bytes */LENGTH`: the file has no bytes at this offset.
        StatusCode::RANGE_NOT_SATISFIABLE => return Ok(beyond_the_end(&headers, requested_offset)),
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(FetchError::Absent),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            return Err(FetchError::Broken(format!("the server answered {status}")));
        }
        _ if status.is_server_error() => return Err(FetchError::Broken(format!("the server answered {status}"))),
        _ => return Err(FetchError::Refused(format!("the server answered {status}"))),
    };
    Ok(Fetched { offset, total_bytes, body: body(answer.into_body()) })
}

/// Handles an offset at or beyond the end. At the end the file is complete; beyond it the kept bytes are of another file, and the download
/// starts again at 0.
fn beyond_the_end(headers: &HeaderMap, requested_offset: u64) -> Fetched {
    let total =
        headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes */")?.parse().ok());
    let offset = if total == Some(requested_offset) { requested_offset } else { 0 };
    let failing_body = futures::stream::once(async { Err(io::Error::other("the server's file is shorter")) });
    Fetched { offset, total_bytes: total, body: failing_body.boxed() }
}

fn body(incoming: Incoming) -> BoxStream<'static, io::Result<Bytes>> {
    let frames = incoming.into_data_stream();
    futures::stream::unfold(Some(frames), |frames| async move {
        let mut frames = frames?;
        match tokio::time::timeout(STALL_TIMEOUT, frames.next()).await {
            Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(frames))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(io::Error::from(io::ErrorKind::TimedOut)), None)),
        }
    })
    .boxed()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Parses `bytes START-END/TOTAL` into START and TOTAL.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (part, total) = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    Some((part.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}
