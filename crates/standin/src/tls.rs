//! TLS configurations for clients and servers from PEM, and a loop that serves an HTTP application over TLS.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::log;
use crate::pki::Leaf;

/// Limit of concurrent connections; a stand-in cluster has a few nodes.
const CONNECTIONS_MAX: usize = 256;
/// Timeout for a peer's handshake and for its HTTP/1 request head; the connection is then closed.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept, such as for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// The certificates that a peer presented, verified against the client CA; empty for an anonymous peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificates(pub(crate) Arc<Vec<CertificateDer<'static>>>);

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let list = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    list.map_err(|error| anyhow::anyhow!("bad certificate: {error}"))
}

fn private_key(pem: &str) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| anyhow::anyhow!("bad private key"))
}

fn roots(ca_pem: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca_pem)? {
        roots.add(certificate).context("bad CA certificate")?;
    }
    Ok(roots)
}

/// Builds a client configuration that trusts only `ca_pem` and presents `identity`, if any.
pub(crate) fn client_config(ca_pem: &str, identity: Option<&Leaf>) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder().with_root_certificates(roots(ca_pem)?);
    Ok(Arc::new(match identity {
        Some(leaf) => builder.with_client_auth_cert(certificates(&leaf.certificate)?, private_key(&leaf.key)?)?,
        None => builder.with_no_client_auth(),
    }))
}

/// Builds a client configuration that accepts any server certificate. Only for fetching the CA, whose hash is checked afterwards.
pub(crate) fn unverified_client_config() -> anyhow::Result<Arc<ClientConfig>> {
    let provider = CryptoProvider::get_default().context("no TLS provider is installed")?.clone();
    let builder =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Builds a server configuration that presents `leaf` and accepts, but does not require, client certificates of `client_ca_pem`.
pub(crate) fn server_config(leaf: &Leaf, client_ca_pem: &str) -> anyhow::Result<Arc<ServerConfig>> {
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots(client_ca_pem)?)).allow_unauthenticated().build()?;
    let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
    let mut config = builder.with_single_cert(certificates(&leaf.certificate)?, private_key(&leaf.key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the next connection.
pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => log::error!("accept: {error}"),
        }
        tokio::time::sleep(ACCEPT_RETRY).await;
    }
}

/// Serves `app` on `listener` until the process ends; each request carries its peer's [`PeerCertificates`].
pub(crate) async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, app: Router) {
    let (acceptor, permits) = (TlsAcceptor::from(tls), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let stream = accept(&listener).await;
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(Ok(stream)) = tokio::time::timeout(PEER_TIMEOUT, acceptor.accept(stream)).await else { return };
            let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let presented = presented.iter().map(|der| der.clone().into_owned()).collect();
            let app = app.layer(axum::Extension(PeerCertificates(Arc::new(presented))));
            let mut server = Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(PEER_TIMEOUT);
            // A connection error concerns only this peer.
            let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).await;
        });
    }
}

#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
