//! Bearer tokens: shown once, kept as a digest.
//!
//! A token is `PREFIX_`, 32 random bytes in base64, and a checksum of all that: junk is told from a token without a look-up, and so are
//! tokens from what scanners find in files. The checksum is no secret and proves nothing; only the look-up does.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_model::Entropy;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::digest::sha256_hex;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Characters that they take in base64 without padding.
const TOKEN_CHARS: usize = (TOKEN_BYTES * 8).div_ceil(6);
/// Characters of the checksum: the 32 bits of a CRC-32 in base 62, as GitHub's tokens have it.
const CHECKSUM_CHARS: usize = 6;
/// The digits of base 62.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

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

impl ApiToken {
    /// `PREFIX_`, 32 random bytes, and their checksum.
    pub fn generate(prefix: &str, entropy: &dyn Entropy) -> Self {
        let mut bytes = Zeroizing::new([0_u8; TOKEN_BYTES]);
        entropy.fill(&mut *bytes);
        let body = Zeroizing::new(format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(*bytes)));
        let text = SecretText::new(format!("{}{}", *body, checksum(&body)));
        Self { sha256: text.sha256(), text }
    }

    /// Whether a text has the form of a token of that prefix, and the checksum that its own characters give.
    pub fn is_well_formed(prefix: &str, text: &str) -> bool {
        let parts = text.len().checked_sub(CHECKSUM_CHARS).and_then(|length| text.split_at_checked(length));
        parts.is_some_and(|(body, check)| {
            let random = body.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
            random.is_some_and(|random| random.len() == TOKEN_CHARS) && checksum(body) == check
        })
    }
}

/// The CRC-32 of a text in base 62, the highest digit first.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [b'0'; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.map(char::from).iter().collect()
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

    #[test]
    fn only_a_token_with_its_own_prefix_and_checksum_is_well_formed() {
        let token = ApiToken::generate("gpuaas", &Sevens).text;
        let text = token.expose();
        assert!(ApiToken::is_well_formed("gpuaas", text), "{text}");
        assert!(!ApiToken::is_well_formed("gpuaas-enroll", text) && !ApiToken::is_well_formed("gpu", text));
        for position in 0..text.len() {
            let mut changed = text.to_owned().into_bytes();
            changed[position] = if changed[position] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!ApiToken::is_well_formed("gpuaas", &changed), "{changed}");
        }
        let longer = format!("gpuaas_{}A", "A".repeat(TOKEN_CHARS));
        let longer = format!("{longer}{}", checksum(&longer));
        let junk = ["", "gpuaas", "gpuaas_", "gpuaas_1", "x", "äöüäöü", &text[..text.len() - 1], longer.as_str()];
        assert!(junk.iter().all(|junk| !ApiToken::is_well_formed("gpuaas", junk)));
    }

    #[test]
    fn checksum_is_the_crc_32_in_base_62() {
        // The check value of CRC-32, as its specifications give it.
        let digits = checksum("123456789");
        let digits = digits.bytes().map(|digit| BASE62.iter().position(|of| *of == digit).unwrap() as u64);
        assert_eq!(digits.fold(0, |number, digit| number * 62 + digit), 0xCBF4_3926);
    }
}
