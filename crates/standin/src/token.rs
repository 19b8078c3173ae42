//! Join tokens in RKE2's form: `K10<64 hex of the CA's SHA-256>::<user>:<password>`, or the password alone.
//!
//! The hash is over the bytes of the CA's PEM file, as the real program takes it for a single self-signed CA.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

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

/// SHA-256 of a CA file's bytes, in hex.
pub(crate) fn ca_hash(ca_pem: &str) -> String {
    hex::encode(digest(&SHA256, ca_pem.as_bytes()))
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
