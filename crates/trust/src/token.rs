//! Bearer tokens: shown once, kept as a digest.
//!
//! A token is `PREFIX_`, 32 random bytes in base64, and a code over all that under a key that the control plane alone holds. So a text that somebody
//! made up is told from a token without a look-up, however much he knows of how tokens are made. The code grants nothing: only the look-up does.
//!
//! Deliberately absent: a checksum that anybody could verify. What a token's holder mistyped, the control plane tells.

use std::fmt;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_model::Entropy;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::digest::{same_bytes, sha256_hex};

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Characters that they take in base64 without padding.
const TOKEN_CHARS: usize = (TOKEN_BYTES * 8).div_ceil(6);
/// Bytes of the code, of the 32 of its HMAC-SHA256: at 2,000 guesses a second from each of a million addresses, the first right one takes tens of
/// thousands of years, and is a look-up of a token that does not exist. A multiple of three has one form in base64.
const CODE_BYTES: usize = 9;
/// Characters that they take in base64.
const CODE_CHARS: usize = CODE_BYTES / 3 * 4;

/// A text that must not be printed: wiped when dropped, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Guards `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored in its stead.
    pub fn sha256(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// A fresh token.
#[derive(Debug)]
pub struct ApiToken {
    /// What its holder gets, once.
    pub text: SecretText,
    /// What is stored.
    pub sha256: String,
}

/// Makes tokens, and tells them from texts that somebody made up.
#[derive(Debug)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;

    /// The key of these random bytes.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// A fresh token: `PREFIX_`, 32 random bytes, and their code.
    pub fn generate(&self, prefix: &str, entropy: &dyn Entropy) -> ApiToken {
        let mut bytes = Zeroizing::new([0_u8; TOKEN_BYTES]);
        entropy.fill(&mut *bytes);
        let body = Zeroizing::new(format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(*bytes)));
        let text = SecretText::new(format!("{}{}", *body, self.code(&body)));
        ApiToken { sha256: text.sha256(), text }
    }

    /// Whether a text is a token of that prefix that was made under this key, told in constant time. It may have ended since, or lie nowhere.
    pub fn is_genuine(&self, prefix: &str, text: &str) -> bool {
        let random = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
        if random.is_none_or(|random| random.len() != TOKEN_CHARS + CODE_CHARS) {
            return false;
        }
        let parts = text.split_at_checked(text.len() - CODE_CHARS);
        parts.is_some_and(|(body, code)| same_bytes(self.code(body).as_bytes(), code.as_bytes()))
    }

    /// The code of what stands before it.
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
    fn only_a_token_of_its_own_kind_and_unchanged_is_genuine() {
        let (key, token) = (key(1), key(1).generate("gpuaas", &Sevens).text);
        let text = token.expose();
        assert!(key.is_genuine("gpuaas", text), "{text}");
        assert_eq!((TOKEN_BYTES * 8, CODE_BYTES * 8), (256, 72), "bits");
        assert!(!key.is_genuine("gpuaas-enroll", text) && !key.is_genuine("gpu", text));
        let enrollment = text.replacen("gpuaas", "gpuaas-enroll", 1);
        assert!(!key.is_genuine("gpuaas-enroll", &enrollment), "the code of one kind is none of another");
        for position in 0..text.len() {
            let mut changed = text.to_owned().into_bytes();
            changed[position] = if changed[position] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!key.is_genuine("gpuaas", &changed), "{changed}");
        }
        let longer = format!("gpuaas_{}A", "A".repeat(TOKEN_CHARS));
        let longer = format!("{longer}{}", key.code(&longer));
        let wide = format!("gpuaas_{}€{}", "A".repeat(TOKEN_CHARS - 1), "A".repeat(CODE_CHARS - 2));
        let junk = ["", "gpuaas", "gpuaas_", "gpuaas_1", "x", "äöüäöü", &text[..text.len() - 1], &longer, &wide];
        assert!(junk.iter().all(|junk| !key.is_genuine("gpuaas", junk)));
    }

    #[test]
    fn well_formed_token_without_the_key_is_not_genuine() {
        let key = key(1);
        let random = URL_SAFE_NO_PAD.encode([7; TOKEN_BYTES]);
        let of_another_key = self::key(2).generate("gpuaas", &Sevens).text;
        // What can be computed without a key, cut as a code is, and the CRC-32 in base 62 that tokens ended with before.
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
            assert!(!key.is_genuine("gpuaas", &guess), "{guess}");
        }
        assert!(key.is_genuine("gpuaas", key.generate("gpuaas", &Sevens).text.expose()));
    }

    #[test]
    fn a_token_is_as_long_as_documented_and_its_code_is_the_hmac() {
        let token = key(1).generate("gpuaas", &Sevens).text;
        let text = token.expose();
        assert_eq!(text.len(), "gpuaas_".len() + 55, "docs/keys.md tells scanners of files");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{text}");
        assert!(text.ends_with("jBSS4y50rmer"), "{text}");
    }
}
