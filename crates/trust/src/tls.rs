//! TLS as each listener and dialer needs it. TLS 1.3 and 1.2 by one provider; no system roots anywhere: only our own authority counts.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use crate::{
    digest::{same_bytes, sha256_hex},
    renewal::RenewableClients,
};

/// The node channel, roles reversed: the control plane is the HTTP/2 client.
pub const ALPN_NODE: &[u8] = b"gpuaas-node/1";
/// The node's own requests: artifacts, secrets, renewal.
pub const ALPN_FETCH: &[u8] = b"gpuaas-fetch/1";

/// Between replicas of the control plane.
pub const ALPN_REPLICA: &[u8] = b"gpuaas-replica/1";

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

impl TlsError {
    pub(crate) fn of(error: &dyn std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

type Chain = Vec<CertificateDer<'static>>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The API's listener: no client certificate is asked for.
pub fn api_server_config(chain: Chain, key: PrivateKeyDer<'static>) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::of(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::of(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The channel's listener: only who holds a certificate of `authority` gets past the handshake. One that has expired may still be renewed, so
/// whoever accepts asks for its [`Standing`](crate::Standing).
pub fn channel_server_config(
    chain: Chain,
    key: PrivateKeyDer<'static>,
    authority: &CertificateDer<'static>,
) -> Result<ServerConfig, TlsError> {
    mutual_server_config(chain, key, channel_clients(authority)?, &[ALPN_NODE, ALPN_FETCH])
}

/// Takes the certificates of `authority` alone, in their time or soon enough after it to be renewed.
pub(crate) fn channel_clients(authority: &CertificateDer<'static>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(Arc::new(RenewableClients::of(clients_of(authority)?, authority)?))
}

/// The replicas' listener: nodes hold certificates of the same authority, so whoever accepts still looks at the identity.
pub fn replica_server_config(
    chain: Chain,
    key: PrivateKeyDer<'static>,
    authority: &CertificateDer<'static>,
) -> Result<ServerConfig, TlsError> {
    mutual_server_config(chain, key, clients_of(authority)?, &[ALPN_REPLICA])
}

/// Takes the certificates of `authority` alone, in their time.
fn clients_of(authority: &CertificateDer<'static>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider())
        .build()
        .map_err(|error| TlsError::of(&error))
}

fn mutual_server_config(
    chain: Chain,
    key: PrivateKeyDer<'static>,
    clients: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::of(&error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::of(&error))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// A client that trusts the authority in this PEM and shows no certificate.
pub fn client_config(authority_pem: &[u8]) -> Result<ClientConfig, TlsError> {
    let authority = CertificateDer::from_pem_slice(authority_pem).map_err(|error| TlsError::of(&error))?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::of(&error))?
        .with_root_certificates(roots(&authority)?)
        .with_no_client_auth())
}

/// A node's side of the channel.
pub fn node_client_config(
    authority: &CertificateDer<'static>,
    chain: Chain,
    key: PrivateKeyDer<'static>,
    alpn: &[u8],
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::of(&error))?
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(chain, key)
        .map_err(|error| TlsError::of(&error))?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

/// A client that knows only the digest of the authority's certificate: for enrollment.
pub fn pinned_client_config(ca_sha256: &str) -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority::new(ca_sha256)))
        .with_no_client_auth())
}

fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(|error| TlsError::of(&error))?;
    Ok(roots)
}

/// Accepts a server whose chain holds the pinned authority and whose certificate that authority signed for the dialled name.
#[derive(Debug)]
pub struct PinnedAuthority {
    ca_sha256: String,
    provider: Arc<CryptoProvider>,
}

impl PinnedAuthority {
    /// Pins the authority of that digest.
    pub fn new(ca_sha256: &str) -> Self {
        Self { ca_sha256: ca_sha256.to_owned(), provider: provider() }
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates
            .iter()
            .find(|certificate| same_bytes(sha256_hex(certificate).as_bytes(), self.ca_sha256.as_bytes()))
            .ok_or(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;
    use crate::authority::Authority;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn verdict(pin: &str, chain: &[CertificateDer<'_>], name: &str) -> bool {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_millis(NOW.as_millis().unsigned_abs()));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        PinnedAuthority::new(pin).verify_server_cert(&chain[0], &chain[1..], &name, &[], now).is_ok()
    }

    #[test]
    fn only_the_pinned_authoritys_certificate_for_the_dialled_name_is_accepted() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let (chain, _) = authority.issue_server(&["127.0.0.1".into(), "cp.example".into()], NOW).unwrap();
        assert!(verdict(&authority.digest(), &chain, "127.0.0.1"));
        assert!(verdict(&authority.digest(), &chain, "cp.example"));
        assert!(!verdict(&authority.digest(), &chain, "other.example"));
        assert!(!verdict(&"00".repeat(32), &chain, "127.0.0.1"));
        // Somebody who shows the pinned authority beside a certificate of his own.
        let impostor = Authority::generate("cp-1", NOW).unwrap();
        let (forged, _) = impostor.issue_server(&["127.0.0.1".into()], NOW).unwrap();
        let mixed = [forged[0].clone(), authority.certificate().clone()];
        assert!(!verdict(&authority.digest(), &mixed, "127.0.0.1"));
    }
}
