//! Trusted authorities, which can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::{
    provider::{TlsError, client_verifier, provider, roots},
    renewal::channel_client_verifier,
};

/// The authorities that a listener or a dialer trusts. New handshakes use the latest set; open connections are
/// unaffected.
#[derive(Debug)]
pub struct TrustedAuthorities(RwLock<Arc<Verifiers>>);

#[derive(Debug)]
struct Verifiers {
    currently_valid: Arc<dyn ClientCertVerifier>,
    valid_or_renewable: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl TrustedAuthorities {
    /// Trusts these authorities.
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(Verifiers::of(authorities)?))))
    }

    /// Trusts only these authorities, starting with the next handshake.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        let newer = Verifiers::of(authorities)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = newer;
        Ok(())
    }

    /// Returns a verifier that accepts currently valid client certificates.
    pub(crate) fn currently_valid(self: &Arc<Self>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Clients { trusted: self.clone(), verifier: |verifiers| &verifiers.currently_valid })
    }

    /// Returns a verifier that accepts client certificates that are valid or can still be renewed.
    pub(crate) fn valid_or_renewable(self: &Arc<Self>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Clients { trusted: self.clone(), verifier: |verifiers| &verifiers.valid_or_renewable })
    }

    fn current(&self) -> Arc<Verifiers> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Verifiers {
    fn of(authorities: &[CertificateDer<'static>]) -> Result<Arc<Self>, TlsError> {
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider());
        Ok(Arc::new(Self {
            currently_valid: client_verifier(authorities)?,
            valid_or_renewable: channel_client_verifier(authorities)?,
            servers: servers.build().map_err(|error| TlsError::of(&error))?,
        }))
    }
}

#[derive(Debug)]
struct Clients {
    trusted: Arc<TrustedAuthorities>,
    verifier: fn(&Verifiers) -> &Arc<dyn ClientCertVerifier>,
}

impl Clients {
    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        (self.verifier)(&self.trusted.current()).clone()
    }
}

impl ClientCertVerifier for Clients {
    /// Returns no hints: all authorities have the same name, and clients have only one certificate.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

impl ServerCertVerifier for TrustedAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current().servers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().servers.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().servers.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().servers.supported_verify_schemes()
    }
}
