//! Finds the root of a certificate bundle, with the rules of Go's `crypto/x509` that K3s and RKE2 use.

use gpuaas_model::Timestamp;
use x509_parser::{
    certificate::X509Certificate,
    extensions::ParsedExtension,
    oid_registry::{OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_SUBJECT_KEY_IDENTIFIER},
    time::ASN1Time,
};

use crate::authority::certificates_of_pem;

/// Maximum number of certificates above the first in a chain. A cluster's chain has three certificates.
const CHAIN_MAX: usize = 8;
/// Maximum number of certificates of a bundle that are considered.
const BUNDLE_MAX: usize = 64;

/// Returns the DER of the root to which the first certificate of a PEM bundle chains, through certificates of the bundle that are valid at
/// `at`. Returns `None` if the bundle has only one certificate or no such chain, or if the text is not a bundle.
pub fn root_of_bundle(pem: &str, at: Timestamp) -> Option<Vec<u8>> {
    let ders = certificates_of_pem(pem).ok()?;
    let parsed = ders.iter().take(BUNDLE_MAX).map(|der| Some(x509_parser::parse_x509_certificate(der).ok()?.1));
    let certificates: Vec<X509Certificate<'_>> = parsed.collect::<Option<_>>()?;
    let at = ASN1Time::from_timestamp(at.as_millis() / 1_000).ok()?;
    let (first, others) = certificates.split_first()?;
    if others.is_empty() || !first.validity().is_valid_at(at) {
        return None;
    }
    let root = Bundle { others, at }.root_above(first, CHAIN_MAX)?;
    let position = certificates.iter().position(|certificate| std::ptr::eq(certificate, root))?;
    Some(ders[position].to_vec())
}

struct Bundle<'c> {
    /// All certificates but the first.
    others: &'c [X509Certificate<'c>],
    at: ASN1Time,
}

impl<'c> Bundle<'c> {
    /// Returns the root above a certificate: a direct issuer if possible, otherwise through intermediates.
    fn root_above(&self, certificate: &X509Certificate<'_>, longest: usize) -> Option<&'c X509Certificate<'c>> {
        let above = self.others.iter().filter(|other| self.has_issued(other, certificate));
        let (roots, between): (Vec<_>, Vec<_>) = above.partition(|other| is_root(other));
        let direct = roots.first().copied();
        direct.or_else(|| between.into_iter().find_map(|other| self.root_above(other, longest.checked_sub(1)?)))
    }

    fn has_issued(&self, issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
        issuer.subject().as_raw() == certificate.issuer().as_raw()
            && issuer.is_ca()
            && issuer.validity().is_valid_at(self.at)
            && certificate.verify_signature(Some(issuer.public_key())).is_ok()
    }
}

/// Returns true if a certificate names no authority key, or its own.
fn is_root(certificate: &X509Certificate<'_>) -> bool {
    let of = |oid| certificate.get_extension_unique(&oid).ok().flatten().map(|extension| extension.parsed_extension());
    let above = match of(OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER) {
        Some(ParsedExtension::AuthorityKeyIdentifier(names)) => {
            names.key_identifier.as_ref().map_or(&[][..], |id| id.0)
        }
        _ => &[],
    };
    let own = match of(OID_X509_EXT_SUBJECT_KEY_IDENTIFIER) {
        Some(ParsedExtension::SubjectKeyIdentifier(id)) => id.0,
        _ => &[],
    };
    above.is_empty() || above == own
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    struct Ca {
        certificate: Certificate,
        issuer: Issuer<'static, KeyPair>,
    }

    /// Creates an authority, self-signed or issued by `above`. Its certificate has an authority key id if `names_issuer`.
    fn ca(name: &str, above: Option<&Ca>, names_issuer: bool) -> Ca {
        with_key(KeyPair::generate().unwrap(), name, above, names_issuer)
    }

    fn with_key(key: KeyPair, name: &str, above: Option<&Ca>, names_issuer: bool) -> Ca {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.use_authority_key_identifier_extension = names_issuer;
        let certificate = match above {
            Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        Ca { certificate, issuer: Issuer::new(params, key) }
    }

    fn root_of(bundle: &[&Ca]) -> Option<Vec<u8>> {
        root_of_bundle(&bundle.iter().map(|ca| ca.certificate.pem()).collect::<String>(), NOW)
    }

    #[test]
    fn root_is_found_through_intermediates_in_any_order() {
        for names_itself in [false, true] {
            let root = ca("root", None, names_itself);
            let between = ca("between", Some(&root), true);
            let server = ca("server", Some(&between), true);
            let expected = Some(root.certificate.der().to_vec());
            assert_eq!(root_of(&[&server, &between, &root]), expected);
            assert_eq!(root_of(&[&server, &root, &between]), expected);
            assert_eq!(root_of(&[&server, &ca("root", None, false), &between, &root]), expected, "not by name alone");
        }
    }

    #[test]
    fn bundle_of_one_or_without_a_chain_has_no_root() {
        let (root, other) = (ca("root", None, false), ca("other", None, false));
        let server = ca("server", Some(&root), true);
        assert_eq!(root_of(&[&root]), None);
        assert_eq!(root_of(&[&server, &other]), None);
        // Go adds the first certificate to neither the roots nor the intermediates.
        assert_eq!(root_of(&[&root, &other]), None);
        assert_eq!(root_of_bundle("no bundle", NOW), None);
        let pem = format!("{}{}", server.certificate.pem(), root.certificate.pem());
        let late = NOW.plus(Duration::from_secs(1_000_000 * 24 * 3_600));
        assert_eq!(root_of_bundle(&pem, late), None, "all certificates have expired");
    }

    #[test]
    fn cross_signed_certificates_end_the_search() {
        let key = KeyPair::generate().unwrap();
        let same_key = KeyPair::from_pem(&key.serialize_pem()).unwrap();
        let first = with_key(key, "first", None, true);
        let second = ca("second", Some(&first), true);
        let crossed = with_key(same_key, "first", Some(&second), true);
        assert_eq!(root_of(&[&second, &crossed, &second]), None);
    }
}
