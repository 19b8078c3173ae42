//! TLS configurations of all listeners and clients. They use TLS 1.3 with one crypto provider; the API also allows 1.2 if configured. No
//! configuration trusts system roots: only the platform's own authority counts.

use std::{str::FromStr, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    server::danger::ClientCertVerifier,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use crate::{
    digest::{constant_time_eq, sha256_hex},
    provider::{TlsError, provider, roots},
    reloadable::ReloadableCertificate,
    trusted::TrustedAuthorities,
};

/// The node channel, with reversed roles: the control plane is the HTTP/2 client.
pub const ALPN_NODE: &[u8] = b"gpuaas-node/1";
/// Requests from nodes: artifacts, secrets and renewal.
pub const ALPN_FETCH: &[u8] = b"gpuaas-fetch/1";

/// Between replicas of the control plane.
pub const ALPN_REPLICA: &[u8] = b"gpuaas-replica/1";

/// Versions for connections between components of the platform.
const ONLY_1_3: &[&SupportedProtocolVersion] = &[&TLS13];
/// Versions for API clients if TLS 1.2 is allowed.
const SINCE_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// Oldest TLS version allowed for API clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldestTls {
    /// TLS 1.2, for clients without support for 1.3.
    V1_2,
    /// TLS 1.3.
    #[default]
    V1_3,
}

impl OldestTls {
    const fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::V1_2 => SINCE_1_2,
            Self::V1_3 => ONLY_1_3,
        }
    }
}

impl FromStr for OldestTls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.2" => Ok(Self::V1_2),
            "1.3" => Ok(Self::V1_3),
            _ => Err(format!("{text:?} is neither 1.2 nor 1.3")),
        }
    }
}

type Chain = Vec<CertificateDer<'static>>;

/// Configures the API's listener, which requests no client certificate.
pub fn api_server_config(shown: Arc<ReloadableCertificate>, oldest: OldestTls) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(oldest.versions())
        .map_err(|error| TlsError::of(&error))?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Configures the channel's listener. The handshake requires a client certificate of a `trusted` authority. It also accepts an expired
/// certificate that can still be renewed, so the caller must check its [`PermittedUse`](crate::PermittedUse).
pub fn channel_server_config(
    shown: Arc<ReloadableCertificate>,
    trusted: &Arc<TrustedAuthorities>,
) -> Result<ServerConfig, TlsError> {
    mutual_server_config(shown, trusted.valid_or_renewable(), &[ALPN_NODE, ALPN_FETCH])
}

/// Configures the replicas' listener. Nodes have certificates of the same authority, so the caller must check the peer's identity.
pub fn replica_server_config(
    shown: Arc<ReloadableCertificate>,
    trusted: &Arc<TrustedAuthorities>,
) -> Result<ServerConfig, TlsError> {
    mutual_server_config(shown, trusted.currently_valid(), &[ALPN_REPLICA])
}

fn mutual_server_config(
    shown: Arc<ReloadableCertificate>,
    clients: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(ONLY_1_3)
        .map_err(|error| TlsError::of(&error))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(shown);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // No session tickets: a resumed session would skip verification against the current authorities and time.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Configures a client that trusts the authorities in this PEM and has no certificate.
pub fn client_config(authority_pem: &[u8]) -> Result<ClientConfig, TlsError> {
    let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authority_pem).collect();
    let authorities = authorities.map_err(|error| TlsError::of(&error))?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(ONLY_1_3)
        .map_err(|error| TlsError::of(&error))?
        .with_root_certificates(roots(&authorities)?)
        .with_no_client_auth())
}

/// Configures a node's side of the channel.
pub fn node_client_config(
    authorities: &[CertificateDer<'static>],
    chain: Chain,
    key: PrivateKeyDer<'static>,
    alpn: &[u8],
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(ONLY_1_3)
        .map_err(|error| TlsError::of(&error))?
        .with_root_certificates(roots(authorities)?)
        .with_client_auth_cert(chain, key)
        .map_err(|error| TlsError::of(&error))?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

/// Configures a replica's connections to other replicas.
pub fn replica_client_config(
    trusted: Arc<TrustedAuthorities>,
    shown: Arc<ReloadableCertificate>,
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(ONLY_1_3)
        .map_err(|error| TlsError::of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(trusted)
        .with_client_cert_resolver(shown);
    config.alpn_protocols = vec![ALPN_REPLICA.to_vec()];
    Ok(config)
}

/// Configures a client for enrollment that knows only the digest of the authority's certificate.
pub fn pinned_client_config(ca_sha256: &str) -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(ONLY_1_3)
        .map_err(|error| TlsError::of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority::new(ca_sha256)))
        .with_no_client_auth())
}

/// Accepts a server if its chain contains the pinned authority and that authority signed its certificate for the requested name.
#[derive(Debug)]
pub struct PinnedAuthority {
    ca_sha256: String,
    provider: Arc<CryptoProvider>,
}

impl PinnedAuthority {
    /// Pins the authority whose certificate has this SHA-256 digest, in hex.
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
            .find(|certificate| constant_time_eq(sha256_hex(certificate).as_bytes(), self.ca_sha256.as_bytes()))
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
mod tests;
