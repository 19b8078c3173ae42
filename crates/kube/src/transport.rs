//! HTTP over TLS over a byte stream that somebody else opens.
//!
//! One HTTP/2 connection is kept and reused; it is pinged, so a stream that died without a word is noticed and replaced by a
//! new one. The caller sees at most one failed request of it.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Uri, header::AUTHORIZATION};
use http_body_util::Limited;
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::client::Body;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::{Service, ServiceBuilder};

use crate::{
    answer::ANSWER_BYTES_MAX,
    cluster::Endpoint,
    error::{KubeError, OpenError},
    kubeconfig::{Identity, Kubeconfig, KubeconfigError},
};

/// A byte stream to the apiserver's port.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Opens byte streams to the apiserver's port, as often as asked. `ConnectionRefused` says that nothing listens there; any
/// other error that the way there is broken.
pub trait Connector: Send + Sync + 'static {
    /// A new stream.
    fn open(&self) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;
}

impl<F, R> Connector for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'static,
{
    fn open(&self) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        Box::pin(self())
    }
}

/// Opening the stream and the TLS handshake take at most so long together; over a loaded wide-area link seconds are normal.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection with a request or a watch on it is pinged this often, and given up when a ping stays unanswered for as long
/// again: together less than a request's own limit, so that a dead connection is replaced before the next request.
const PING_EVERY: Duration = Duration::from_secs(5);
/// An unused connection, and with it the tunnel, is closed after this long.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A Kubernetes client whose every byte goes through `connector`.
pub(crate) fn client(
    kubeconfig: &Kubeconfig,
    endpoint: &Endpoint,
    connector: Arc<dyn Connector>,
) -> Result<kube::Client, KubeError> {
    let tls = TlsOpener {
        connector,
        tls: TlsConnector::from(Arc::new(tls_config(kubeconfig)?)),
        server_name: endpoint.server_name()?,
    };
    let http = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_EVERY)
        .build::<_, Body>(tls);
    let authority: http::uri::Authority =
        endpoint.authority().parse().map_err(|_| KubeError::Refusal(format!("{endpoint} is no address")))?;
    let bearer = bearer(&kubeconfig.identity)?;
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<Body>| {
            let mut uri = std::mem::take(request.uri_mut()).into_parts();
            uri.scheme = Some(http::uri::Scheme::HTTPS);
            uri.authority = Some(authority.clone());
            *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
            if let Some(bearer) = &bearer {
                request.headers_mut().insert(AUTHORIZATION, bearer.clone());
            }
            request
        })
        .map_response(|response: http::Response<hyper::body::Incoming>| {
            response.map(|body| Limited::new(body, ANSWER_BYTES_MAX))
        })
        .service(http);
    Ok(kube::Client::new(service, "default"))
}

fn bearer(identity: &Identity) -> Result<Option<HeaderValue>, KubeError> {
    let Identity::Token(token) = identity else { return Ok(None) };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .map_err(|_| KubeError::from(KubeconfigError::Invalid("token")))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn tls_config(kubeconfig: &Kubeconfig) -> Result<ClientConfig, KubeError> {
    let mut roots = RootCertStore::empty();
    for ca in &kubeconfig.ca {
        roots.add(ca.clone()).map_err(|_| KubeconfigError::Invalid("certificate-authority-data"))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| KubeError::Refusal(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &kubeconfig.identity {
        Identity::Token(_) => config.with_no_client_auth(),
        Identity::Certificate { chain, key } => config
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|_| KubeconfigError::Invalid("client-key-data"))?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Clone)]
struct TlsOpener {
    connector: Arc<dyn Connector>,
    tls: TlsConnector,
    server_name: ServerName<'static>,
}

impl TlsOpener {
    async fn open(self) -> Result<TlsIo, OpenError> {
        let stream = self.connector.open().await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => OpenError::Refused,
            _ => OpenError::Unreachable(error),
        })?;
        let stream = self.tls.connect(self.server_name, stream).await.map_err(handshake)?;
        Ok(TlsIo(TokioIo::new(stream)))
    }
}

fn handshake(error: io::Error) -> OpenError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(cause @ rustls::Error::InvalidCertificate(_)) => OpenError::Untrusted(cause.clone()),
        _ => OpenError::Handshake(error),
    }
}

impl Service<Uri> for TlsOpener {
    type Response = TlsIo;
    type Error = OpenError;
    type Future = BoxFuture<'static, Result<TlsIo, OpenError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let opener = self.clone();
        Box::pin(async move {
            tokio::time::timeout(OPEN_TIMEOUT, opener.open())
                .await
                .unwrap_or(Err(OpenError::Slow(OPEN_TIMEOUT.as_secs())))
        })
    }
}

/// The encrypted stream, as the HTTP client wants it.
struct TlsIo(TokioIo<TlsStream<Box<dyn ByteStream>>>);

impl Connection for TlsIo {
    fn connected(&self) -> Connected {
        match self.0.inner().get_ref().1.alpn_protocol() {
            Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl hyper::rt::Read for TlsIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl hyper::rt::Write for TlsIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
