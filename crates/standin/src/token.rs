//! Join tokens in RKE2's format: `K10<CA hash, 64 hex digits>::<user>:<password>`, or the password alone.
//!
//! The CA hash is a SHA-256, computed as in RKE2:
//!
//! - if the PEM file contains several certificates, and the first chains to a root among them: of that root's DER;
//! - otherwise: of the bytes of the PEM file.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use x509_parser::prelude::{ParsedExtension, Pem, X509Certificate};

const PREFIX: &str = "K10";
const HASH_HEX_LENGTH: usize = 64;
/// Random bytes in a generated password, as in RKE2; 32 hex characters.
const GENERATED_BYTES: usize = 16;

/// A token presented to the supervisor. Has no `Debug` because it contains a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The CA hash in lowercase hex; none for a short token, whose bearer trusts the CA on first use.
    pub(crate) ca_hash: Option<String>,
    /// `server` or `node`.
    pub(crate) user: String,
    /// The secret part.
    pub(crate) password: String,
}

/// The reason why a token is malformed; the texts are RKE2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("token must not be empty")]
    Empty,
    #[error("invalid token format")]
    Format,
    #[error("invalid token CA hash length")]
    HashLength,
}

impl Token {
    /// Parses either form. A short token gets `default_user`.
    pub(crate) fn parse(text: &str, default_user: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        let Some(rest) = text.strip_prefix(PREFIX).filter(|_| text.contains("::")) else {
            return Ok(Self { ca_hash: None, user: default_user.to_owned(), password: text.to_owned() });
        };
        let (hash, credentials) = rest.split_once("::").ok_or(TokenError::Format)?;
        if hash.len() != HASH_HEX_LENGTH {
            return Err(TokenError::HashLength);
        }
        let (user, password) = credentials.split_once(':').ok_or(TokenError::Format)?;
        if user.is_empty() || password.is_empty() || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(TokenError::Format);
        }
        Ok(Self { ca_hash: Some(hash.to_ascii_lowercase()), user: user.to_owned(), password: password.to_owned() })
    }

    /// Formats a full token for the CA whose file content is `ca_pem`.
    pub(crate) fn full(ca_pem: &str, user: &str, password: &str) -> String {
        format!("{PREFIX}{}::{user}:{password}", ca_hash(ca_pem))
    }
}

/// Generates a password of 32 hex characters.
pub(crate) fn generate() -> anyhow::Result<String> {
    let mut bytes = [0; GENERATED_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("failed to read random bytes: {error}"))?;
    Ok(hex::encode(bytes))
}

/// The hash of a CA file in hex, computed as described in the module documentation.
pub(crate) fn ca_hash(ca_pem: &str) -> String {
    let root = root_of_bundle(ca_pem);
    hex::encode(digest(&SHA256, root.as_deref().unwrap_or(ca_pem.as_bytes())))
}

/// Returns the DER of the root of a bundle; none for a single certificate or without a chain to a root.
fn root_of_bundle(ca_pem: &str) -> Option<Vec<u8>> {
    let blocks: Vec<Pem> = Pem::iter_from_buffer(ca_pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    let certificates: Vec<X509Certificate<'_>> = blocks.iter().map(Pem::parse_x509).collect::<Result<_, _>>().ok()?;
    certificates.first().filter(|first| first.validity().is_valid())?;
    let (mut at, mut steps) = (0, 0);
    // Each step moves to an issuer. The number of steps is limited, because certificates can have issued each other.
    while steps < certificates.len() {
        let issued = |above: &usize| {
            let (issuer, below) = (&certificates[*above], &certificates[at]);
            issuer.subject() == below.issuer()
                && issuer.is_ca()
                && issuer.validity().is_valid()
                && below.verify_signature(Some(issuer.public_key())).is_ok()
        };
        let above: Vec<usize> = (1..certificates.len()).filter(issued).collect();
        if let Some(root) = above.iter().find(|index| is_root(&certificates[**index])) {
            return Some(blocks[*root].contents.clone());
        }
        (at, steps) = (*above.first()?, steps + 1);
    }
    None
}

/// Whether a certificate has no authority key identifier, or one that equals its subject key identifier.
fn is_root(certificate: &X509Certificate<'_>) -> bool {
    let (mut above, mut own) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(names) => above = names.key_identifier.as_ref().map(|id| id.0),
            ParsedExtension::SubjectKeyIdentifier(id) => own = Some(id.0),
            _ => {}
        }
    }
    above.is_none() || above == own
}

/// Compares secrets in constant time, over their SHA-256 digests.
pub(crate) fn same_secret(a: &str, b: &str) -> bool {
    verify_slices_are_equal(digest(&SHA256, a.as_bytes()).as_ref(), digest(&SHA256, b.as_bytes()).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_token_reads_back_as_written() {
        let text = Token::full("pem", "server", "se:cret");
        let token = Token::parse(&format!("{text}\n"), "node").unwrap();
        assert_eq!(token.ca_hash.as_deref(), Some(ca_hash("pem").as_str()));
        assert_eq!((token.user.as_str(), token.password.as_str()), ("server", "se:cret"));
    }

    #[test]
    fn hash_of_a_bundle_is_of_its_root_certificate() {
        use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
        let params = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.use_authority_key_identifier_extension = true;
            params
        };
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = params("root").self_signed(&root_key).unwrap();
        let server = params("server").signed_by(&key, &Issuer::new(params("root"), root_key)).unwrap();
        let sha256 = |bytes: &[u8]| hex::encode(digest(&SHA256, bytes));
        assert_eq!(ca_hash(&root.pem()), sha256(root.pem().as_bytes()));
        assert_eq!(ca_hash(&format!("{}{}", server.pem(), root.pem())), sha256(root.der()));
        let (reversed, single) = (format!("{}{}", root.pem(), server.pem()), server.pem());
        assert_eq!(ca_hash(&reversed), sha256(reversed.as_bytes()), "the first certificate has no issuer after it");
        assert_eq!(ca_hash(&single), sha256(single.as_bytes()));
    }

    #[test]
    fn a_short_token_is_a_password_that_pins_no_ca() {
        let token = Token::parse("hunter2", "node").unwrap();
        assert_eq!(token.ca_hash, None);
        assert_eq!((token.user.as_str(), token.password.as_str()), ("node", "hunter2"));
    }

    #[test]
    fn broken_tokens_are_refused_with_the_texts_of_the_real_program() {
        let refused = |text: &str| Token::parse(text, "node").err().map(|error| error.to_string());
        assert_eq!(refused(" ").as_deref(), Some("token must not be empty"));
        assert_eq!(refused("K10abc::server:x").as_deref(), Some("invalid token CA hash length"));
        assert_eq!(refused(&format!("K10{}::server", "a".repeat(64))).as_deref(), Some("invalid token format"));
        assert_eq!(refused(&format!("K10{}::server:", "a".repeat(64))).as_deref(), Some("invalid token format"));
    }
}
