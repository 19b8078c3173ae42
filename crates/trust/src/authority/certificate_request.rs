//! Parsing and checks of nodes' certificate requests.

use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::{certification_request::X509CertificationRequest, oid_registry::OID_EC_P256, prelude::FromDer};

use super::AuthorityError;
use crate::digest::sha256_hex;

/// DER of the only signature algorithm that a request may use.
const ECDSA_WITH_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// Returns the SHA-256 of the public key (its SubjectPublicKeyInfo) in a PEM certificate request, 64 hex digits.
pub fn requested_key_sha256(request_pem: &str) -> Result<String, AuthorityError> {
    let request = |error: &dyn std::fmt::Display| AuthorityError::Request(error.to_string());
    let der = parse_request(request_pem)?;
    let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| request(&error))?;
    Ok(sha256_hex(parsed.certification_request_info.subject_pki.raw))
}

/// Parses the certificate request in a PEM text. Fails if data follows the request.
pub(crate) fn parse_request(pem: &str) -> Result<CertificateSigningRequestDer<'static>, AuthorityError> {
    let request = |error: &dyn std::fmt::Display| AuthorityError::Request(error.to_string());
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|error| request(&error))?;
    match X509CertificationRequest::from_der(&der).map_err(|error| request(&error))? {
        ([], _) => Ok(der),
        _ => Err(request(&"data follows the request")),
    }
}

/// Returns true if a certificate request is for a P-256 key.
pub(crate) fn is_for_p256(der: &[u8]) -> bool {
    let parsed = X509CertificationRequest::from_der(der).ok();
    let algorithm = parsed.as_ref().map(|(_, request)| &request.certification_request_info.subject_pki.algorithm);
    let curve = algorithm.and_then(|algorithm| algorithm.parameters.as_ref()?.as_oid().ok());
    curve.is_some_and(|curve| curve == OID_EC_P256)
}

/// Fails unless a request is in canonical DER: the parser also accepts other encodings of the parts that the signature does not cover.
pub(crate) fn check_canonical(der: &[u8]) -> Result<(), AuthorityError> {
    let request = |error: &dyn std::fmt::Display| AuthorityError::Request(error.to_string());
    let (_, parsed) = X509CertificationRequest::from_der(der).map_err(|error| request(&error))?;
    let signature = [&[0], parsed.signature_value.data.as_ref()].concat();
    let info = parsed.certification_request_info.raw;
    let content = [info, ECDSA_WITH_SHA256, &tagged(0x03, &signature)].concat();
    if tagged(0x30, &content) == der { Ok(()) } else { Err(request(&"it is not canonical DER")) }
}

/// Encodes a DER value of up to 64 KiB.
pub(crate) fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    bytes.extend_from_slice(content);
    bytes
}
