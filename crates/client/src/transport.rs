//! Requests and responses over TLS.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use gpuaas_api_types::Problem;
use http::{Method, Request, Response, StatusCode, Uri, header, uri::Authority};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::TcpStream;
use tower::{
    BoxError,
    timeout::{Timeout, error::Elapsed},
    util::BoxCloneSyncService,
};

use crate::{error::ClientError, escape::escaped};

/// Longest response, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Time limit of a connection with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: less than the 10 seconds after which the server closes it.
const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(5);

/// Sends requests, and keeps idle connections for the next ones.
type Http = legacy::Client<Connector, Full<Bytes>>;
/// Opens connections, each within [`CONNECT_TIMEOUT`].
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// A client of one control plane with one token. Its clones share their connections.
#[derive(Clone)]
pub struct Client {
    url: String,
    authority: Authority,
    token: String,
    idempotency_key: Option<String>,
    if_match: Option<String>,
    is_dry_run: bool,
    plan_digest: Option<String>,
    correlation_id: Option<String>,
    http: Http,
}

impl Client {
    /// Creates a client of the control plane at `url` (`https://host:port`, port 443 without one). The server's certificate must be issued
    /// by an authority in `authority_pem`.
    pub fn new(url: &str, authority_pem: &[u8], token: &str) -> Result<Self, ClientError> {
        let authority = authority_of(url)?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authority_pem) {
            let authority = authority
                .map_err(|error| ClientError::InvalidSetting(format!("the authority's file is invalid: {error}")))?;
            roots.add(authority).map_err(|error| ClientError::InvalidSetting(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(ClientError::InvalidSetting("the authority's file contains no certificate".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| ClientError::InvalidSetting(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1();
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_MAX)
            .build(Connector::new(Timeout::new(connector.wrap_connector(tcp), CONNECT_TIMEOUT)));
        Ok(Self {
            url: url.to_owned(),
            authority,
            token: token.to_owned(),
            idempotency_key: None,
            if_match: None,
            is_dry_run: false,
            plan_digest: None,
            correlation_id: None,
            http,
        })
    }

    /// Returns the same client with an idempotency key for its mutations: the control plane executes each of them once, however often it is
    /// sent.
    #[must_use]
    pub fn with_idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }

    /// Returns the same client with an ETag as the precondition of its mutations.
    #[must_use]
    pub fn with_if_match(self, etag: impl Into<String>) -> Self {
        Self { if_match: Some(etag.into()), ..self }
    }

    /// Returns the same client for dry runs: the control plane checks its mutations and answers them, but changes nothing. An operation
    /// without a dry run refuses it. Without an idempotency key, which would store the answer.
    #[must_use]
    pub fn with_dry_run(self) -> Self {
        Self { is_dry_run: true, idempotency_key: None, ..self }
    }

    /// Returns the same client with the digest of a plan as the condition of its mutations: the control plane refuses to run another plan.
    #[must_use]
    pub fn with_plan_digest(self, digest: Option<String>) -> Self {
        Self { plan_digest: digest, ..self }
    }

    /// Returns the same client with a correlation id (a UUID) for its requests, which appears in logs, events, audit records and tasks.
    #[must_use]
    pub fn with_correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Requests a value.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.value(self.send(Method::GET, path, None::<&()>, "application/json").await?).await
    }

    /// Returns the present ETag of a resource.
    pub(crate) async fn etag(&self, path: &str) -> Result<String, ClientError> {
        let response = self.send(Method::GET, path, None::<&()>, "application/json").await?;
        let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok());
        etag.map(str::to_owned).ok_or_else(|| ClientError::InvalidResponse("the ETag header is missing".to_owned()))
    }

    /// Requests a text.
    pub(crate) async fn text(&self, path: &str) -> Result<String, ClientError> {
        let bytes = self.bytes(self.send(Method::GET, path, None::<&()>, "text/plain").await?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Requests bytes.
    pub(crate) async fn raw(&self, path: &str, accept: &str) -> Result<Bytes, ClientError> {
        self.bytes(self.send(Method::GET, path, None::<&()>, accept).await?).await
    }

    /// Sends a value and returns the response's value.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.value(self.send(Method::POST, path, Some(body), "application/json").await?).await
    }

    /// Sends a value that replaces the one at `path`, and returns the response's value.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.value(self.send(Method::PUT, path, Some(body), "application/json").await?).await
    }

    /// Sends a deletion and returns the response's value.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.value(self.send(Method::DELETE, path, None::<&()>, "application/json").await?).await
    }

    /// Sends a request and returns a successful response with an unread body.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        accept: &str,
    ) -> Result<Response<Incoming>, ClientError> {
        let content =
            body.map(serde_json::to_vec).transpose().map_err(|error| ClientError::InvalidSetting(error.to_string()))?;
        let mutates = method != Method::GET;
        let resource = path.split('?').next().unwrap_or_default();
        if resource.ends_with('/') || resource.contains("//") {
            return Err(ClientError::InvalidSetting("an argument is empty: give a name or an id".to_owned()));
        }
        let path = match mutates {
            true => with_conditions(path, self.is_dry_run, self.plan_digest.as_deref()),
            false => path.to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header(header::ACCEPT, accept)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if let Some(key) = self.idempotency_key.as_ref().filter(|_| mutates) {
            request = request.header("idempotency-key", key);
        }
        if let Some(etag) = self.if_match.as_ref().filter(|_| mutates) {
            request = request.header(header::IF_MATCH, etag);
        }
        if let Some(id) = &self.correlation_id {
            request = request.header("correlation-id", id);
        }
        if content.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(content.unwrap_or_default())))
            .map_err(|error| ClientError::InvalidSetting(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| match certificate_defect(&error) {
            Some(reason) => ClientError::Untrusted { url: self.url.clone(), reason },
            None => self.unreachable(cause(&error)),
        })?;
        if response.status().is_success() { Ok(response) } else { Err(self.problem(response).await) }
    }

    async fn value<T: DeserializeOwned>(&self, response: Response<Incoming>) -> Result<T, ClientError> {
        let bytes = self.bytes(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::InvalidResponse(error.to_string()))
    }

    async fn bytes(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let collected = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        Ok(collected.map_err(|error| self.unreachable(error.to_string()))?.to_bytes())
    }

    async fn problem(&self, response: Response<Incoming>) -> ClientError {
        let status: StatusCode = response.status();
        match self.bytes(response).await {
            Ok(bytes) => match serde_json::from_slice::<Problem>(&bytes) {
                Ok(problem) => {
                    let page = if problem.kind.starts_with('/') { self.url.trim_end_matches('/') } else { "" };
                    ClientError::Problem(Box::new(Problem { kind: format!("{page}{}", problem.kind), ..problem }))
                }
                Err(_) => ClientError::InvalidResponse(format!("status {status} without a problem document")),
            },
            Err(error) => error,
        }
    }

    fn unreachable(&self, reason: String) -> ClientError {
        ClientError::Unreachable { url: self.url.clone(), reason }
    }
}

/// Adds to the path of a mutation that it is a dry run, and the plan that it expects.
fn with_conditions(path: &str, is_dry_run: bool, plan_digest: Option<&str>) -> String {
    let dry_run = is_dry_run.then(|| "dry_run=true".to_owned());
    let digest = plan_digest.map(|digest| format!("plan_digest={}", escaped(digest)));
    dry_run.into_iter().chain(digest).fold(path.to_owned(), |path, parameter| {
        let before = if path.contains('?') { '&' } else { '?' };
        format!("{path}{before}{parameter}")
    })
}

/// Refuses a URL that is not that of a control plane: `https://host` or `https://host:port`.
pub fn check_url(url: &str) -> Result<(), ClientError> {
    authority_of(url).map(drop)
}

/// Returns host and port of `https://host:port`.
fn authority_of(url: &str) -> Result<Authority, ClientError> {
    let refused = |why: &str| ClientError::InvalidSetting(format!("the URL {url:?} {why}"));
    let uri: Uri = url.parse().map_err(|_| refused("is not valid"))?;
    if uri.scheme_str() != Some("https") {
        return Err(refused("does not begin with https://"));
    }
    let authority = uri.authority().cloned().ok_or_else(|| refused("names no host"))?;
    if authority.as_str().contains('@') {
        // The URL may contain a password.
        return Err(ClientError::InvalidSetting(
            "the URL contains a user name: leave out everything before the @".to_owned(),
        ));
    }
    let has_port_or_none = authority.port_u16().is_some() || authority.as_str() == authority.host();
    if !has_port_or_none {
        return Err(refused("has a port that is not a number from 0 to 65535"));
    }
    match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "/" => Ok(authority),
        _ => Err(refused("has a path: name only the control plane")),
    }
}

/// Returns why the server's certificate was refused, if it was.
fn certificate_defect(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(at) = next {
        if let Some(rustls::Error::InvalidCertificate(defect)) = at.downcast_ref() {
            return Some(match defect {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet",
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "is for other addresses than this one"
                }
                _ => "is not signed by an authority in the CA file",
            });
        }
        // The source of an I/O error is that of its inner error.
        next = match at.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => at.source(),
        };
    }
    None
}

/// Returns the innermost cause of an error, which is the part that a reader can act on.
fn cause(error: &legacy::Error) -> String {
    let mut innermost: &(dyn Error + 'static) = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match innermost.is::<Elapsed>() {
        true => format!("no connection in {} s", CONNECT_TIMEOUT.as_secs()),
        false => innermost.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_mutation_are_added_to_its_query() {
        assert_eq!(with_conditions("/w", false, None), "/w");
        assert_eq!(with_conditions("/w", true, None), "/w?dry_run=true");
        let of_project = with_conditions("/w?project=a", false, Some("plan-1&x"));
        assert_eq!(of_project, "/w?project=a&plan_digest=plan-1%26x");
    }

    #[test]
    fn url_names_a_host_and_maybe_a_port() {
        for (url, authority) in [
            ("https://gpu.example", "gpu.example"),
            ("https://gpu.example:8443/", "gpu.example:8443"),
            ("https://[::1]", "[::1]"),
            ("https://[::1]:443", "[::1]:443"),
            ("https://10.0.0.7:28443", "10.0.0.7:28443"),
        ] {
            assert_eq!(authority_of(url).expect(url).as_str(), authority, "{url}");
        }
        for url in [
            "",
            "gpu.example",
            "http://gpu.example",
            "https://",
            "https:///x",
            "https://gpu.example/api",
            "https://gpu.example?x",
            "https://gpu.example:0x1",
            "https://gpu.example:70000",
            "https://gpu example",
            "https://::1",
        ] {
            let refused = authority_of(url).expect_err(&format!("{url:?} is accepted")).to_string();
            assert!(refused.starts_with(&format!("the URL {url:?} ")), "{refused}");
        }
        let refused = authority_of("https://ada:secret@gpu.example").expect_err("it is not valid").to_string();
        assert!(refused.contains("contains a user name") && !refused.contains("secret"), "{refused}");
    }
}
