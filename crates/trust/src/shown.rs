//! A certificate that is replaced while connections are served.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::{TlsError, provider};

/// The certificate and key that a listener or a dialer shows. A handshake shows the newest; connections that stand keep what they have.
#[derive(Debug)]
pub struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ShownCertificate {
    /// Shows that chain with its key, which must be the key of its first certificate.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified(chain, key)?))))
    }

    /// Shows another chain with its key from the next handshake on.
    pub fn replace(&self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), TlsError> {
        let newer = certified(chain, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = newer;
        Ok(())
    }

    /// The chain that is shown now, the certificate itself first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.present().cert.clone()
    }

    fn present(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(|error| TlsError::of(&error))
}

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }
}

impl ResolvesClientCert for ShownCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
