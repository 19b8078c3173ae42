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
mod tests {
    use rustls_pki_types::CertificateSigningRequestDer;
    use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

    use super::certificate_request::{requested_key_sha256, tagged};
    use super::*;
    use gpuaas_model::NodeId;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn identity() -> NodeIdentity {
        let node: NodeId = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
        NodeIdentity { control_plane: "cp-1".into(), node, epoch: 3 }
    }

    #[test]
    fn authority_is_restored_from_pem() {
        let made = Authority::generate("cp-1", NOW).unwrap();
        let kept = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        assert_eq!(made.digest(), kept.digest());
    }

    #[test]
    fn extra_certificate_in_the_authority_pem_is_dropped() {
        let (own, other) = (Authority::generate("cp-1", NOW).unwrap(), Authority::generate("cp-1", NOW).unwrap());
        let both = format!("{}{}", own.certificate_pem(), other.certificate_pem());
        let kept = Authority::from_pem(&both, &own.key_pem()).unwrap();
        assert_eq!(kept.certificate_pem(), own.certificate_pem());
        let read = CertificateDer::from_pem_slice(kept.certificate_pem().as_bytes()).unwrap();
        assert_eq!(&read, own.certificate());
    }

    #[test]
    fn authority_certificate_of_another_key_is_refused() {
        let (own, other) = (Authority::generate("cp-1", NOW).unwrap(), Authority::generate("cp-1", NOW).unwrap());
        let swapped = Authority::from_pem(other.certificate_pem(), &own.key_pem());
        assert!(matches!(swapped, Err(AuthorityError::Material(_))));
    }

    #[test]
    fn restored_successor_chains_to_its_predecessor() {
        let first = Authority::generate("cp-1", NOW).unwrap();
        let made = first.successor(NOW).unwrap();
        let kept = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        let kept = kept.with_predecessor(&made.by_predecessor_pem()).unwrap();
        let chain =
            |authority: &Authority| authority.issue_server(&["cp.example".into()], NOW).unwrap().0[1..].to_vec();
        assert_eq!(chain(&kept), chain(&made));
        assert_eq!(chain(&kept).len(), 3, "the certificate by the predecessor, the predecessor's, and its own");
        assert_eq!(chain(&first).len(), 1);
    }

    #[test]
    fn a_certificate_names_the_authority_that_issued_it() {
        let first = Authority::generate("cp-1", NOW).unwrap();
        let next = first.successor(NOW).unwrap();
        let request = NodeKey::generate().unwrap().request_pem().unwrap();
        for (issuer, other) in [(&first, &next), (&next, &first)] {
            let pem = issuer.issue_node(&request, &identity(), NOW).unwrap();
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert!(names_issuer(&der, issuer.certificate()) && !names_issuer(&der, other.certificate()));
        }
    }

    #[test]
    fn node_certificate_ignores_the_identity_in_the_request() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut greedy = CertificateParams::new(vec!["cp.example".to_owned()]).unwrap();
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let request = greedy.serialize_request(&key).unwrap().pem().unwrap();
        let pem = authority.issue_node(&request, &identity(), NOW).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(NodeIdentity::of_certificate(&der).unwrap(), identity());
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!parsed.is_ca());
        assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
    }

    #[test]
    fn a_request_with_a_spoiled_signature_or_another_kind_of_key_is_refused() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let good = NodeKey::generate().unwrap().request_pem().unwrap();
        assert!(authority.issue_node(&good, &identity(), NOW).is_ok());
        assert!(matches!(authority.issue_node("garbage", &identity(), NOW), Err(AuthorityError::Request(_))));
        let mut spoiled = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
        *spoiled.last_mut().unwrap() ^= 1;
        let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, spoiled);
        let spoiled = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
        assert!(matches!(authority.issue_node(&spoiled, &identity(), NOW), Err(AuthorityError::Request(_))));
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        assert!(matches!(authority.issue_node(&request, &identity(), NOW), Err(AuthorityError::WeakKey)));
        // A request from OpenSSL with a P-384 key that signs with SHA-256, as P-256 keys do.
        let p384 = "-----BEGIN CERTIFICATE REQUEST-----\n\
                    MIH3MH8CAQAwADB2MBAGByqGSM49AgEGBSuBBAAiA2IABMUhzIav+l6J0ZXCxF7w\n\
                    9tbJiArnY3H7JIBWnmCWOITeowxrlU0HbQ9sOBr/COQSan2Tdvn20MMxrhvMz9I7\n\
                    MONXiFJF7nlIARkXPc0mL4bSEqzwYNvJdTYW8dWxCk9CPqAAMAoGCCqGSM49BAMC\n\
                    A2gAMGUCMAyxr3+vQdSm+ndbmf/H2hbWjsgN8WoMTz3zRUcBdx4qOICrPxJ1rWzc\n\
                    /AyytHJ97AIxAO+PmPYhX/UjwRAB5lWkvAR9ASEOz7YtsRQlGLs7E3+DHOOtQdDq\n\
                    bDHrxkwD2bOvKA==\n\
                    -----END CERTIFICATE REQUEST-----\n";
        assert!(matches!(authority.issue_node(p384, &identity(), NOW), Err(AuthorityError::WeakKey)));
    }

    #[test]
    fn a_pin_is_the_digest_of_the_public_key_and_outlives_the_certificate() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let made = ServerKey::generate().unwrap();
        let kept = ServerKey::from_pem(&made.to_pem()).unwrap();
        assert_eq!(made.pin(), kept.pin());
        assert_ne!(made.pin(), ServerKey::generate().unwrap().pin());
        let chain = authority.issue_server_for(&kept, &["cp.example".to_owned()], NOW).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
        let digest = crate::digest::sha256_hex(certificate.public_key().raw);
        assert_eq!(made.pin(), format!("sha256//{}", STANDARD.encode(hex::decode(digest).unwrap())));
    }

    fn request_pem(der: &[u8]) -> String {
        let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
    }

    /// Validity period in seconds relative to [`NOW`].
    fn life(certificate: &[u8]) -> (i64, i64) {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
        let since = |at: x509_parser::time::ASN1Time| at.timestamp() - NOW.as_millis() / 1_000;
        (since(parsed.validity().not_before), since(parsed.validity().not_after))
    }

    #[test]
    fn certificates_have_the_documented_lifetime_and_are_backdated() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let node =
            authority.issue_node(&NodeKey::generate().unwrap().request_pem().unwrap(), &identity(), NOW).unwrap();
        assert_eq!(life(&CertificateDer::from_pem_slice(node.as_bytes()).unwrap()), (-300, 86_400));
        let (server, _) = authority.issue_server(&["cp.example".to_owned()], NOW).unwrap();
        assert_eq!(life(&server[0]), (-300, 90 * 86_400));
        assert_eq!(life(authority.certificate()), (-300, 3_650 * 86_400));
        assert_eq!(crate::issued_at(&server[0]).unwrap(), NOW);
    }

    #[test]
    fn request_and_certificate_of_one_key_have_one_digest() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let made = NodeKey::generate().unwrap();
        let kept = NodeKey::from_pem(&made.to_pem()).unwrap();
        let pem = authority.issue_node(&made.request_pem().unwrap(), &identity(), NOW).unwrap();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let certified = certified_key_sha256(&certificate).unwrap();
        let requested = |key: &NodeKey| requested_key_sha256(&key.request_pem().unwrap()).unwrap();
        assert_eq!(certified, requested(&kept));
        assert_ne!(certified, requested(&NodeKey::generate().unwrap()));
        assert!(requested_key_sha256("garbage").is_err() && certified_key_sha256(b"garbage").is_err());
    }

    #[test]
    fn request_must_be_canonical_der_without_trailing_data() {
        let authority = Authority::generate("cp-1", NOW).unwrap();
        let good = NodeKey::generate().unwrap().request_pem().unwrap();
        let der = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
        let issue = |der: &[u8]| authority.issue_node(&request_pem(der), &identity(), NOW);
        assert!(issue(&der).is_ok());
        assert!(matches!(issue(&[&der[..], &[0]].concat()), Err(AuthorityError::Request(_))), "trailing data");
        // The same length in a longer encoding: different bytes with the same signature.
        let (header, content) = if der[1] == 0x81 { (&der[2..3], &der[3..]) } else { (&der[2..4], &der[4..]) };
        let longer = [&[0x30, 0x83][..], &[0, 0, 0][..3 - header.len()], header, content].concat();
        assert!(matches!(issue(&longer), Err(AuthorityError::Request(_))), "longer length encoding");
        // A bit of the signature declared unused, which the signature does not cover.
        let signature = X509CertificationRequest::from_der(&der).unwrap().1.signature_value.data.len();
        let mut unused = der.clone();
        unused[der.len() - signature - 1] = 1;
        assert!(matches!(issue(&unused), Err(AuthorityError::Request(_))), "an unused bit");
    }

    #[test]
    fn lengths_have_their_shortest_form() {
        for (length, header) in [
            (0, vec![0x30, 0]),
            (0x7f, vec![0x30, 0x7f]),
            (0x80, vec![0x30, 0x81, 0x80]),
            (0xff, vec![0x30, 0x81, 0xff]),
            (0x100, vec![0x30, 0x82, 1, 0]),
        ] {
            let tagged = tagged(0x30, &vec![7; length]);
            assert_eq!((&tagged[..header.len()], tagged.len()), (&header[..], header.len() + length));
        }
    }
}
