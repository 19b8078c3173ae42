//! A certificate that can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::provider::{TlsError, provider};

/// Certificate and key of a listener or client. New handshakes use the newest; open connections are unaffected.
#[derive(Debug)]
pub struct ReloadableCertificate(RwLock<Arc<CertifiedKey>>);

impl ReloadableCertificate {
    /// Creates it with a chain and the private key of the chain's first certificate.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified(chain, key)?))))
    }

    /// Replaces chain and key, starting with the next handshake.
    pub fn replace(&self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), TlsError> {
        let newer = certified(chain, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = newer;
        Ok(())
    }

    /// Returns the current chain, leaf certificate first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current().cert.clone()
    }

    fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(|error| TlsError::of(&error))
}

impl ResolvesServerCert for ReloadableCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for ReloadableCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
