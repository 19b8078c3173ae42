//! Join tokens in RKE2's form: `K10<64 hex of the CA's SHA-256>::<user>:<password>`, or the password alone.
//!
//! The hash is over the bytes of the CA's PEM file where it holds one certificate, and over the DER of the root that its first certificate
//! chains to where it holds several, as the real program takes it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use x509_parser::prelude::{ParsedExtension, Pem, X509Certificate};

const PREFIX: &str = "K10";
const HASH_HEX_LENGTH: usize = 64;
/// Entropy of a generated token, as RKE2's 32 hex characters.
const GENERATED_BYTES: usize = 16;

/// What one presents to the supervisor. `Debug` is absent on purpose: it holds a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// SHA-256 of the CA file in hex; none for a short token, whose bearer trusts on first use.
    pub(crate) ca_hash: Option<String>,
    /// `server` or `node`.
    pub(crate) user: String,
    /// The secret itself.
    pub(crate) password: String,
}

/// Why a token cannot be used; the texts are the real program's.
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
    /// Reads either form. A short token gets `default_user`.
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

    /// The full form for the CA whose file is `ca_pem`.
    pub(crate) fn full(ca_pem: &str, user: &str, password: &str) -> String {
        format!("{PREFIX}{}::{user}:{password}", ca_hash(ca_pem))
    }
}

/// A new password, 32 hex characters.
pub(crate) fn generate() -> anyhow::Result<String> {
    let mut bytes = [0; GENERATED_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(hex::encode(bytes))
}

/// The hash of a CA file, in hex.
pub(crate) fn ca_hash(ca_pem: &str) -> String {
    let root = root_of_bundle(ca_pem);
    hex::encode(digest(&SHA256, root.as_deref().unwrap_or(ca_pem.as_bytes())))
}

/// The DER of the root of a bundle, none where there is one certificate or no chain.
fn root_of_bundle(ca_pem: &str) -> Option<Vec<u8>> {
    let blocks: Vec<Pem> = Pem::iter_from_buffer(ca_pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    let certificates: Vec<X509Certificate<'_>> = blocks.iter().map(Pem::parse_x509).collect::<Result<_, _>>().ok()?;
    certificates.first().filter(|first| first.validity().is_valid())?;
    let (mut at, mut steps) = (0, 0);
    // Each step is one certificate up; certificates that issued each other lead to no root.
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

/// Whether a certificate names no key above it, or its own.
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

/// Compares secrets without telling by time how much of them agrees.
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
    fn hash_of_a_bundle_is_its_roots_and_of_one_certificate_the_files() {
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
        let (reversed, alone) = (format!("{}{}", root.pem(), server.pem()), server.pem());
        assert_eq!(ca_hash(&reversed), sha256(reversed.as_bytes()), "the first chains to none behind it");
        assert_eq!(ca_hash(&alone), sha256(alone.as_bytes()));
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
