//! TLS over byte streams that a [`Connector`] opens.

use std::{io, sync::Arc};

use rustls::{ClientConfig, RootCertStore, client::Resumption};
use rustls_pki_types::ServerName;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    connector::Connector,
    endpoint::Endpoint,
    error::{KubeError, OpenError},
    kubeconfig::{Identity, Kubeconfig, KubeconfigError},
    limits::{HANDSHAKE_BYTES_MAX, OPEN_TIMEOUT},
    metered::{Allowance, Metered},
};

/// Opens streams, verifies the peer's certificate, and presents the client certificate if there is one.
pub(crate) struct Dialer {
    connector: Arc<dyn Connector>,
    tls: TlsConnector,
    server_name: ServerName<'static>,
}

impl Dialer {
    pub(crate) fn new(
        kubeconfig: &Kubeconfig,
        endpoint: &Endpoint,
        connector: Arc<dyn Connector>,
    ) -> Result<Self, KubeError> {
        let tls = TlsConnector::from(Arc::new(tls_config(kubeconfig)?));
        Ok(Self { connector, tls, server_name: endpoint.server_name()? })
    }

    /// Opens an encrypted stream and returns its allowance of received bytes, which is at first enough for a handshake.
    pub(crate) async fn dial(&self) -> Result<(TlsStream<Metered>, Allowance), OpenError> {
        let dialled = tokio::time::timeout(OPEN_TIMEOUT, self.open());
        dialled.await.unwrap_or(Err(OpenError::TimedOut(OPEN_TIMEOUT.as_secs())))
    }

    async fn open(&self) -> Result<(TlsStream<Metered>, Allowance), OpenError> {
        let stream = self.connector.open().await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => OpenError::Refused,
            _ => OpenError::Unreachable(error),
        })?;
        let allowance = Allowance::of(HANDSHAKE_BYTES_MAX);
        let metered = Metered { stream, allowance: allowance.clone() };
        let stream = self.tls.connect(self.server_name.clone(), metered).await.map_err(handshake)?;
        Ok((stream, allowance))
    }
}

fn handshake(error: io::Error) -> OpenError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(cause @ rustls::Error::InvalidCertificate(_)) => OpenError::Untrusted(cause.clone()),
        _ => OpenError::Handshake(error),
    }
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
    // With one request at a time, HTTP/2 would only add frames, windows and compressed headers that a hostile peer could abuse.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Session tickets are data of the peer, up to 64 KB each, and would be kept between connections.
    config.resumption = Resumption::disabled();
    Ok(config)
}
