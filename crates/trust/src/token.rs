//! Bearer tokens: shown once, kept as a digest.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gpuaas_model::Entropy;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::digest::sha256_hex;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;

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
    /// `PREFIX_` and 32 random bytes.
    pub fn generate(prefix: &str, entropy: &dyn Entropy) -> Self {
        let mut bytes = Zeroizing::new([0_u8; TOKEN_BYTES]);
        entropy.fill(&mut *bytes);
        let text = SecretText::new(format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(*bytes)));
        Self { sha256: text.sha256(), text }
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
}
