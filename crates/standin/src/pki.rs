//! Certificate authorities and leaf certificates: ECDSA P-256; CAs are valid for ten years, leaves for 365 days.
//!
//! A CA is created once and kept. A leaf is reissued when it is missing, unreadable, within 120 days of its expiry (RKE2's
//! limit), signed by another CA or issued for other names. Of a certificate request, only the public key is used: the server
//! determines names and usages.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::CertificateSigningRequestDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::paths;

const CA_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
const RENEW_BEFORE: Duration = Duration::from_secs(120 * 24 * 3600);

/// A certificate authority with its key.
pub(crate) struct Ca {
    /// The CA's file, byte for byte: every full token contains its hash.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The extended key usages of a leaf certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Client,
    Server,
    Both,
}

/// Names and usage of a leaf certificate.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organization: Option<String>,
    /// Subject alternative names: DNS names and IP addresses.
    pub(crate) names: Vec<String>,
    pub(crate) usage: Usage,
}

/// A certificate and its key, both PEM.
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Subject {
    /// The subject of a client certificate; `organization` is its Kubernetes group.
    pub(crate) fn client(common_name: &str, organization: Option<&str>) -> Self {
        let organization = organization.map(str::to_owned);
        Self { common_name: common_name.to_owned(), organization, names: Vec::new(), usage: Usage::Client }
    }

    /// The subject of a serving certificate for `names`.
    pub(crate) fn server(common_name: &str, names: Vec<String>) -> Self {
        Self { common_name: common_name.to_owned(), organization: None, names, usage: Usage::Server }
    }

    fn params(&self) -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = distinguished_name(&self.common_name, self.organization.as_deref());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        if self.usage != Usage::Server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        if self.usage != Usage::Client {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, LEAF_LIFE)?;
        Ok(params)
    }
}

impl Ca {
    /// Loads the CA from `<base>.crt` and `<base>.key`, or creates it if there is no certificate.
    pub(crate) fn load_or_create(base: &Utf8Path, common_name: &str) -> anyhow::Result<Self> {
        let (certificate, key) = (with_suffix(base, "crt"), with_suffix(base, "key"));
        if let Some(pem) = paths::read_optional(&certificate)? {
            let key_pem = std::fs::read_to_string(&key).with_context(|| format!("{certificate} has no key"))?;
            return Self::from_pem(pem, &key_pem).with_context(|| format!("unusable CA {certificate}"));
        }
        let pair = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&format!("{common_name}@{}", unix_now()?.as_secs()), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
        set_validity(&mut params, CA_LIFE)?;
        let pem = params.self_signed(&pair)?.pem();
        // The key is written first, so that a certificate on disk always has its key.
        paths::write_durable(&key, 0o600, pair.serialize_pem())?;
        paths::write_durable(&certificate, 0o644, &pem)?;
        Ok(Self { pem, issuer: Issuer::new(params, pair) })
    }

    fn from_pem(pem: String, key_pem: &str) -> anyhow::Result<Self> {
        let issuer = Issuer::from_ca_cert_pem(&pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { pem, issuer })
    }

    /// Issues a leaf with a new key.
    pub(crate) fn issue(&self, subject: &Subject) -> anyhow::Result<Leaf> {
        let pair = KeyPair::generate()?;
        Ok(Leaf { certificate: self.sign(subject, &pair)?, key: pair.serialize_pem() })
    }

    /// Issues a certificate for the public key of the DER request `csr`; ignores the names and extensions that it requests.
    pub(crate) fn sign_request(&self, subject: &Subject, csr: &[u8]) -> anyhow::Result<String> {
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr))?;
        self.sign(subject, &request.public_key)
    }

    fn sign(&self, subject: &Subject, key: &impl PublicKeyData) -> anyhow::Result<String> {
        // A leaf is followed by its CA, as in RKE2's files.
        Ok(format!("{}{}", subject.params()?.signed_by(key, &self.issuer)?.pem(), self.pem))
    }

    /// Returns the leaf at `<base>.crt` and `<base>.key`, reissued under the conditions in the module documentation.
    pub(crate) fn load_or_issue(&self, base: &Utf8Path, subject: &Subject) -> anyhow::Result<Leaf> {
        let (certificate, key) = (with_suffix(base, "crt"), with_suffix(base, "key"));
        if let (Some(pem), Some(key)) = (paths::read_optional(&certificate)?, paths::read_optional(&key)?)
            && self.is_reusable(&pem, subject)
        {
            return Ok(Leaf { certificate: pem, key });
        }
        let leaf = self.issue(subject)?;
        if let Some(dir) = base.parent() {
            paths::make_dir(dir, 0o700)?;
        }
        paths::write(&key, 0o600, &leaf.key)?;
        paths::write(&certificate, 0o644, &leaf.certificate)?;
        Ok(leaf)
    }

    fn is_reusable(&self, pem: &str, subject: &Subject) -> bool {
        let check = || -> anyhow::Result<bool> {
            let (_, leaf) = x509_parser::pem::parse_x509_pem(pem.as_bytes())?;
            let (_, ca) = x509_parser::pem::parse_x509_pem(self.pem.as_bytes())?;
            let (_, leaf) = X509Certificate::from_der(&leaf.contents)?;
            let (_, ca) = X509Certificate::from_der(&ca.contents)?;
            let until = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or(0);
            Ok(Duration::from_secs(until) > unix_now()? + RENEW_BEFORE
                && leaf.verify_signature(Some(ca.public_key())).is_ok()
                && names_of(&leaf)? == sorted(&subject.names))
        };
        check().unwrap_or(false)
    }
}

fn names_of(certificate: &X509Certificate<'_>) -> anyhow::Result<Vec<String>> {
    let Some(extension) = certificate.subject_alternative_name()? else { return Ok(Vec::new()) };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    });
    Ok(sorted(&names.collect::<Vec<_>>()))
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn set_validity(params: &mut CertificateParams, life: Duration) -> anyhow::Result<()> {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(unix_now()?.as_secs());
    params.not_before = now;
    params.not_after = now + life;
    Ok(())
}

fn unix_now() -> anyhow::Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")
}

/// Appends `.suffix` to `base`, keeping any extension that it has.
pub(crate) fn with_suffix(base: &Utf8Path, suffix: &str) -> Utf8PathBuf {
    Utf8PathBuf::from(format!("{base}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().to_path_buf()).unwrap();
        (dir, path)
    }

    #[test]
    fn a_ca_is_made_once_and_kept() {
        let (_guard, dir) = dir();
        let first = Ca::load_or_create(&dir.join("server-ca"), "rke2-server-ca").unwrap();
        let second = Ca::load_or_create(&dir.join("server-ca"), "rke2-server-ca").unwrap();
        assert_eq!(first.pem, second.pem);
    }

    #[test]
    fn a_leaf_is_kept_until_its_names_change_or_its_ca_is_another() {
        let (_guard, dir) = dir();
        let ca = Ca::load_or_create(&dir.join("a"), "a").unwrap();
        let subject = |names: &[&str]| Subject::server("s", names.iter().map(|&n| n.to_owned()).collect());
        let base = dir.join("leaf");
        let first = ca.load_or_issue(&base, &subject(&["127.1.2.3", "h"])).unwrap();
        assert_eq!(ca.load_or_issue(&base, &subject(&["h", "127.1.2.3"])).unwrap().certificate, first.certificate);
        assert_ne!(ca.load_or_issue(&base, &subject(&["h"])).unwrap().certificate, first.certificate);
        let kept = ca.load_or_issue(&base, &subject(&["h"])).unwrap();
        let other = Ca::load_or_create(&dir.join("b"), "b").unwrap();
        assert_ne!(other.load_or_issue(&base, &subject(&["h"])).unwrap().certificate, kept.certificate);
    }

    #[test]
    fn a_request_cannot_choose_its_own_name() {
        let (_guard, dir) = dir();
        let ca = Ca::load_or_create(&dir.join("a"), "a").unwrap();
        let pair = KeyPair::generate().unwrap();
        let mut requested = CertificateParams::default();
        requested.distinguished_name = distinguished_name("system:admin", Some("system:masters"));
        let csr = requested.serialize_request(&pair).unwrap();
        let subject = Subject::client("system:node:n1", Some("system:nodes"));
        let pem = ca.sign_request(&subject, csr.der()).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
    }
}
