//! The platform's certificate authority. It signs only the control plane's server certificates, the identities of replicas and nodes, its
//! successor's certificate and signing-key sets.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_model::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
    SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use time::OffsetDateTime;
use x509_parser::{
    extensions::ParsedExtension,
    oid_registry::{OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_SUBJECT_KEY_IDENTIFIER},
};
use zeroize::Zeroizing;

pub(crate) mod certificate_request;

use self::certificate_request::{check_canonical, is_for_p256, parse_request};
use crate::{
    digest::sha256_hex,
    identity::{BACKDATED, NodeIdentity, ReplicaIdentity},
};

/// Lifetime of a node's certificate. The agent renews it after two thirds.
pub const NODE_CERTIFICATE_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// Lifetime of certificates of the control plane's listeners and replicas. They are issued at every start and renewed after two thirds.
pub const SERVER_CERTIFICATE_LIFE: Duration = Duration::from_secs(90 * 24 * 3_600);
/// Lifetime of the authority itself.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Characters per line of PEM.
const PEM_LINE_BYTES: usize = 64;

/// Why a certificate could not be issued or read.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The request is malformed or not signed by its own key.
    #[error("the certificate request is invalid: {0}")]
    Request(String),
    /// The type of the key is not accepted.
    #[error("the certificate request's key must be ECDSA P-256")]
    WeakKey,
    /// A certificate or key of the authority is malformed.
    #[error("certificate authority: {0}")]
    Material(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Material(error.to_string())
    }
}

/// A certificate authority with its key.
///
/// A successor has its predecessor's name and a certificate issued by it. Clients that trust only the predecessor therefore accept the
/// successor's certificates. RFC 4210 calls this certificate `NewWithOld`; RFC 5280 does not count it in the path length.
pub struct Authority {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// This authority's certificate issued by its predecessor, then the predecessor's own certificate; empty for the first authority.
    by_predecessor: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// Generates the first authority of a control plane.
    pub fn generate(control_plane: &str, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = authority_params(&format!("GPUaaS {control_plane}"), now)?.self_signed(&key)?;
        let (pem, key_pem) = (certificate.pem(), key.serialize_pem());
        Self::from_pem(&pem, &key_pem)
    }

    /// Generates a successor with the name of this authority and a certificate issued by it.
    pub fn successor(&self, now: Timestamp) -> Result<Self, AuthorityError> {
        let material = |error: &dyn std::fmt::Display| AuthorityError::Material(error.to_string());
        let (_, own) = x509_parser::parse_x509_certificate(&self.certificate).map_err(|error| material(&error))?;
        let name = own.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let params = authority_params(name.ok_or_else(|| material(&"the authority has no name"))?, now)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let next = Self::from_pem(&params.self_signed(&key)?.pem(), &key.serialize_pem())?;
        let mut params = params;
        params.use_authority_key_identifier_extension = true;
        let by_this = params.signed_by(&key, &self.issuer)?.der().clone();
        Ok(Self { by_predecessor: vec![by_this, self.certificate.clone()], ..next })
    }

    /// Loads an authority from its stored certificate and key. Fails if the certificate does not match the key: only the key is stored
    /// sealed, so another writer could have replaced the certificate.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, AuthorityError> {
        let material = |error: &dyn std::fmt::Display| AuthorityError::Material(error.to_string());
        let key = KeyPair::from_pem(key_pem)?;
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| material(&error))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|error| material(&error))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(AuthorityError::Material("the certificate does not match the authority's key".to_owned()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        // Encoded again, to drop any other text in the input.
        let certificate_pem = self::certificate_pem(&certificate);
        Ok(Self { certificate, certificate_pem, issuer, by_predecessor: Vec::new() })
    }

    /// Adds the predecessor's certificates, in the form that [`Authority::by_predecessor_pem`] returns.
    pub fn with_predecessor(self, by_predecessor_pem: &str) -> Result<Self, AuthorityError> {
        Ok(Self { by_predecessor: certificates_of_pem(by_predecessor_pem)?, ..self })
    }

    /// Returns the certificate issued by the predecessor and the predecessor's own certificate in PEM; empty for the first authority.
    pub fn by_predecessor_pem(&self) -> String {
        self.by_predecessor.iter().map(|certificate| certificate_pem(certificate)).collect()
    }

    /// Returns the authority's certificate in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the authority's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the authority's certificate as a slice of one, without the predecessor's.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        std::slice::from_ref(&self.certificate)
    }

    /// Returns the certificate with its chain: first the path to the predecessor, for clients that trust only that one, then this
    /// authority's own certificate. The order matters: OpenSSL takes the first issuer that fits and stops at a self-signed one.
    fn chain(&self, certificate: CertificateDer<'static>) -> Vec<CertificateDer<'static>> {
        let mut chain = vec![certificate];
        chain.extend(self.by_predecessor.iter().cloned());
        chain.push(self.certificate.clone());
        chain
    }

    /// Returns the key for sealed storage.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Returns the SHA-256 of the certificate, which enrollment strings pin.
    pub fn digest(&self) -> String {
        sha256_hex(&self.certificate)
    }

    /// Signs `message` with the authority's key (ECDSA P-256 with SHA-256, ASN.1). Signing-key sets are signed this way.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, AuthorityError> {
        Ok(rcgen::SigningKey::sign(self.issuer.key(), message)?)
    }

    /// Issues a certificate with a new key for a listener with these names and addresses. The chain includes this authority and its
    /// predecessor.
    pub fn issue_server(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AuthorityError> {
        let key = ServerKey::generate()?;
        Ok((self.issue_server_for(&key, names, now)?, key.to_der()))
    }

    /// Issues a certificate for `key` with these names and addresses. The chain includes this authority and its predecessor.
    pub fn issue_server_for(
        &self,
        key: &ServerKey,
        names: &[String],
        now: Timestamp,
    ) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = distinguished_name("GPUaaS control plane");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SERVER_CERTIFICATE_LIFE)?;
        let certificate = params.signed_by(&key.key, &self.issuer)?;
        Ok(self.chain(certificate.der().clone()))
    }

    /// Issues a certificate with a new key with which replicas authenticate each other, as server and as client. The chain includes this
    /// authority and its predecessor.
    pub fn issue_replica(
        &self,
        identity: &ReplicaIdentity,
        now: Timestamp,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(vec![identity.server_name()])?;
        params.distinguished_name = distinguished_name("GPUaaS replica");
        let uri = identity.uri().try_into();
        let uri = uri.map_err(|_| AuthorityError::Material("the identity is not ASCII".to_owned()))?;
        params.subject_alt_names.push(SanType::URI(uri));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SERVER_CERTIFICATE_LIFE)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok((self.chain(certificate.der().clone()), key))
    }

    /// Issues a node's certificate for the key of the request. Ignores everything else in the request.
    pub fn issue_node(
        &self,
        request_pem: &str,
        identity: &NodeIdentity,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let der = parse_request(request_pem)?;
        let mut request = CertificateSigningRequestParams::from_der(&der)
            .map_err(|error| AuthorityError::Request(error.to_string()))?;
        // The request's algorithm is that of the signature and does not determine the curve.
        if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 || !is_for_p256(&der) {
            return Err(AuthorityError::WeakKey);
        }
        check_canonical(&der)?;
        let uri =
            identity.uri().try_into().map_err(|_| AuthorityError::Material("the identity is not ASCII".to_owned()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&identity.node.to_string());
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, NODE_CERTIFICATE_LIFE)?;
        request.params = params;
        Ok(request.signed_by(&self.issuer)?.pem())
    }
}

/// Key of a listener. A stored key outlives its certificates, so a pin on it stays valid.
pub struct ServerKey {
    key: KeyPair,
}

impl ServerKey {
    /// Generates an ECDSA P-256 key.
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)? })
    }

    /// Loads a stored key.
    pub fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::from_pem(pem)? })
    }

    /// Returns the key for sealed storage.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.serialize_pem())
    }

    /// Returns the key in the form that rustls expects.
    pub fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Returns `sha256//` and the base64 digest of the public key, as expected by curl's `--pinnedpubkey`.
    pub fn pin(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.key.subject_public_key_info());
        format!("sha256//{}", STANDARD.encode(digest))
    }
}

/// Key of a node. It is generated on the node and never leaves it.
pub struct NodeKey {
    key: KeyPair,
}

impl NodeKey {
    /// Generates an ECDSA P-256 key.
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)? })
    }

    /// Loads a stored key.
    pub fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::from_pem(pem)? })
    }

    /// Returns the key for storage on the node.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.serialize_pem())
    }

    /// Returns the key in the form that rustls expects.
    pub fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Returns a certificate request that proves possession of the key and requests nothing else.
    pub fn request_pem(&self) -> Result<String, AuthorityError> {
        Ok(CertificateParams::default().serialize_request(&self.key)?.pem()?)
    }
}

/// Parses the certificates of a PEM text.
pub fn certificates_of_pem(pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.map_err(|error| AuthorityError::Material(error.to_string()))
}

/// Returns true if a certificate names the authority's key as its issuer, or names no issuer key. Does not check the signature.
pub fn names_issuer(certificate: &[u8], authority: &[u8]) -> bool {
    let key_of = |certificate: &[u8], oid| {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let extension = parsed.get_extension_unique(&oid).ok()??;
        match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(of) => of.key_identifier.as_ref().map(|id| id.0.to_vec()),
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        }
    };
    let issuer = key_of(certificate, OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER);
    issuer.is_none() || issuer == key_of(authority, OID_X509_EXT_SUBJECT_KEY_IDENTIFIER)
}

/// Returns the SHA-256 of a DER certificate's public key (its SubjectPublicKeyInfo), 64 hex digits.
pub fn certified_key_sha256(certificate: &[u8]) -> Result<String, AuthorityError> {
    let request = |error: &dyn std::fmt::Display| AuthorityError::Request(error.to_string());
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).map_err(|error| request(&error))?;
    Ok(sha256_hex(certificate.public_key().raw))
}

/// Returns the parameters of every authority certificate. Path length 0 permits no intermediate authority except a successor with the same
/// name.
fn authority_params(name: &str, now: Timestamp) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, now, AUTHORITY_LIFE)?;
    Ok(params)
}

/// Encodes a certificate as PEM.
pub fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    let lines: Vec<String> = STANDARD
        .encode(certificate)
        .as_bytes()
        .chunks(PEM_LINE_BYTES)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, life: Duration) -> Result<(), AuthorityError> {
    let at = |millis: i64| {
        OffsetDateTime::from_unix_timestamp(millis / 1_000).map_err(|error| AuthorityError::Material(error.to_string()))
    };
    let backdated = i64::try_from(BACKDATED.as_millis()).unwrap_or(0);
    params.not_before = at(now.as_millis() - backdated)?;
    params.not_after = at(now.plus(life).as_millis())?;
    Ok(())
}

#[cfg(test)]
mod tests;
