//! Bearer tokens: shown once, stored as a digest.
//!
//! A token is `PREFIX_`, 32 random bytes in base64, and a code over both with a key that only the control plane holds. The control plane
//! therefore recognizes an invented token without a look-up, even if the sender knows the format. The code grants no access: that requires
//! the look-up.
//!
//! Deliberately absent: a checksum that anyone can verify. Only the control plane detects a mistyped token.

use std::fmt;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_model::Entropy;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::digest::{constant_time_eq, sha256_hex};

/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Length of the random bytes in base64 without padding.
const TOKEN_CHARS: usize = (TOKEN_BYTES * 8).div_ceil(6);
/// Bytes of the 32-byte HMAC-SHA256 that form the code. At 2,000 guesses per second from each of a million addresses, the first correct
/// guess takes tens of thousands of years, and leads only to a look-up of a token that does not exist. A multiple of three has exactly one
/// base64 form.
const CODE_BYTES: usize = 9;
/// Length of the code in base64.
const CODE_CHARS: usize = CODE_BYTES / 3 * 4;

/// A text that must not be printed: wiped on drop and hidden from `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the SHA-256 to store instead of the text, as 64 hex digits.
    pub fn sha256(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// A newly generated token.
#[derive(Debug)]
pub struct ApiToken {
    /// The token's text, shown to its holder once.
    pub text: SecretText,
    /// SHA-256 of the text, to be stored.
    pub sha256: String,
}

/// Generates tokens and recognizes tokens generated with the same key.
#[derive(Debug)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;

    /// Creates the key from random bytes.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Generates a token: `PREFIX_`, 32 random bytes and the code.
    pub fn generate(&self, prefix: &str, entropy: &dyn Entropy) -> ApiToken {
        let mut bytes = Zeroizing::new([0_u8; TOKEN_BYTES]);
        entropy.fill(&mut *bytes);
        let body = Zeroizing::new(format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(*bytes)));
        let text = SecretText::new(format!("{}{}", *body, self.code(&body)));
        ApiToken { sha256: text.sha256(), text }
    }

    /// Returns true if `text` is a token with this prefix generated with this key; compares in constant time. The token may be expired,
    /// revoked or not stored at all.
    pub fn has_valid_code(&self, prefix: &str, text: &str) -> bool {
        let random = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
        if random.is_none_or(|random| random.len() != TOKEN_CHARS + CODE_CHARS) {
            return false;
        }
        let parts = text.split_at_checked(text.len() - CODE_CHARS);
        parts.is_some_and(|(body, code)| constant_time_eq(self.code(body).as_bytes(), code.as_bytes()))
    }

    /// Returns the code over the preceding text.
    fn code(&self, body: &str) -> String {
        URL_SAFE_NO_PAD.encode(&hmac::sign(&self.0, body.as_bytes()).as_ref()[..CODE_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_text_does_not_print_itself() {
        let secret = SecretText::new("hunter2".into());
        assert_eq!(format!("{secret:?}"), "SecretText(…)");
        assert_eq!(secret.expose(), "hunter2");
    }

    struct Sevens;

    impl Entropy for Sevens {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    fn key(byte: u8) -> TokenKey {
        TokenKey::new(&[byte; TokenKey::BYTES])
    }

    #[test]
    fn token_code_is_valid_only_unchanged_and_for_its_prefix() {
        let (key, token) = (key(1), key(1).generate("gpuaas", &Sevens).text);
        let text = token.expose();
        assert!(key.has_valid_code("gpuaas", text), "{text}");
        assert_eq!((TOKEN_BYTES * 8, CODE_BYTES * 8), (256, 72), "bits");
        assert!(!key.has_valid_code("gpuaas-enroll", text) && !key.has_valid_code("gpu", text));
        let enrollment = text.replacen("gpuaas", "gpuaas-enroll", 1);
        assert!(!key.has_valid_code("gpuaas-enroll", &enrollment), "a code is valid only for its prefix");
        for position in 0..text.len() {
            let mut changed = text.to_owned().into_bytes();
            changed[position] = if changed[position] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!key.has_valid_code("gpuaas", &changed), "{changed}");
        }
        let longer = format!("gpuaas_{}A", "A".repeat(TOKEN_CHARS));
        let longer = format!("{longer}{}", key.code(&longer));
        let wide = format!("gpuaas_{}€{}", "A".repeat(TOKEN_CHARS - 1), "A".repeat(CODE_CHARS - 2));
        let junk = ["", "gpuaas", "gpuaas_", "gpuaas_1", "x", "äöüäöü", &text[..text.len() - 1], &longer, &wide];
        assert!(junk.iter().all(|junk| !key.has_valid_code("gpuaas", junk)));
    }

    #[test]
    fn token_made_without_the_key_has_no_valid_code() {
        let key = key(1);
        let random = URL_SAFE_NO_PAD.encode([7; TOKEN_BYTES]);
        let of_another_key = self::key(2).generate("gpuaas", &Sevens).text;
        // Guesses computed without a key, cut to the length of a code, and the base-62 CRC-32 of the former token format.
        let body = format!("gpuaas_{random}");
        let digest = sha256_hex(body.as_bytes());
        let guesses = [
            of_another_key.expose().to_owned(),
            format!("{body}{}", &digest[..CODE_CHARS]),
            format!("{body}{}", URL_SAFE_NO_PAD.encode(&hex::decode(&digest).unwrap()[..CODE_BYTES])),
            format!("{body}{}", "A".repeat(CODE_CHARS)),
            "gpuaas_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc0STEBP".to_owned(),
        ];
        for guess in guesses {
            assert!(!key.has_valid_code("gpuaas", &guess), "{guess}");
        }
        assert!(key.has_valid_code("gpuaas", key.generate("gpuaas", &Sevens).text.expose()));
    }

    #[test]
    fn a_token_is_as_long_as_documented_and_its_code_is_the_hmac() {
        let token = key(1).generate("gpuaas", &Sevens).text;
        let text = token.expose();
        assert_eq!(text.len(), "gpuaas_".len() + 55, "docs/keys.md documents the length for secret scanners");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{text}");
        assert!(text.ends_with("jBSS4y50rmer"), "{text}");
    }
}
