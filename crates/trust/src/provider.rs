//! The cryptographic provider of TLS, what is built with it for several configurations, and its error.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::CertificateDer;

/// A TLS configuration could not be created.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

impl TlsError {
    pub(crate) fn of(error: &dyn std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub(crate) fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| TlsError::of(&error))?;
    }
    Ok(roots)
}

/// Creates a verifier that accepts only currently valid client certificates of `authorities`.
pub(crate) fn client_verifier(
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider())
        .build()
        .map_err(|error| TlsError::of(&error))
}
