//! Requests and responses over TLS.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gpuaas_api_types::Problem;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::TlsConnector;

use crate::error::ClientError;

/// Longest response, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Time limit of the TCP connection, and again of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that sends requests.
type Connection = SendRequest<Full<Bytes>>;

/// A client of one control plane with one token.
#[derive(Clone)]
pub struct Client {
    url: String,
    /// `host:port`.
    address: String,
    token: String,
    idempotency_key: Option<String>,
    if_match: Option<String>,
    is_dry_run: bool,
    correlation_id: Option<String>,
    tls: TlsConnector,
    /// The idle connection; `None` in a client that opens one per request.
    idle_connection: Option<Arc<Mutex<Option<Connection>>>>,
}

impl Client {
    /// Creates a client of the control plane at `url` (`https://host:port`). The server's certificate must be issued by an authority in
    /// `authority_pem`.
    pub fn new(url: &str, authority_pem: &[u8], token: &str) -> Result<Self, ClientError> {
        let address = url
            .strip_prefix("https://")
            .ok_or_else(|| ClientError::InvalidSetting(format!("the URL {url} does not begin with https://")))?;
        let address = address.trim_end_matches('/');
        let address = if address.contains(':') { address.to_owned() } else { format!("{address}:443") };
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
        Ok(Self {
            url: url.to_owned(),
            address,
            token: token.to_owned(),
            idempotency_key: None,
            if_match: None,
            is_dry_run: false,
            correlation_id: None,
            tls: TlsConnector::from(Arc::new(config)),
            idle_connection: None,
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

    /// Returns the same client with a correlation id (a UUID) for its requests, which appears in logs, events, audit records and tasks.
    #[must_use]
    pub fn with_correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Returns the same client with one connection for all its requests, one after the other. It reconnects when the connection has ended.
    /// Clones of the result share the connection.
    #[must_use]
    pub fn with_persistent_connection(self) -> Self {
        Self { idle_connection: Some(Arc::default()), ..self }
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
        let path = match self.is_dry_run && mutates {
            true => format!("{path}{}dry_run=true", if path.contains('?') { '&' } else { '?' }),
            false => path.to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.address)
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
        let response = self.exchange(request).await.map_err(|reason| self.unreachable(reason))?;
        if response.status().is_success() { Ok(response) } else { Err(self.problem(response).await) }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        let describe = |error: hyper::Error| error.to_string();
        let Some(kept) = &self.idle_connection else {
            return self.connect().await?.send_request(request).await.map_err(describe);
        };
        let mut kept = kept.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => self.reuse_or_connect(connection).await?,
            None => self.connect().await?,
        };
        let response = connection.send_request(request).await.map_err(describe)?;
        *kept = Some(connection);
        Ok(response)
    }

    /// Returns the connection after the previous response was read, or a new one if it has ended.
    async fn reuse_or_connect(&self, mut connection: Connection) -> Result<Connection, String> {
        if connection.ready().await.is_ok() { Ok(connection) } else { self.connect().await }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|error| error.to_string())?;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address)).await;
        let stream = connecting.map_err(|_| "no connection in 10 s".to_owned())?.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.tls.connect(name, stream)).await;
        let stream = connecting.map_err(|_| "no handshake in 10 s".to_owned())?.map_err(|error| error.to_string())?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
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
