//! JSON objects that end with a digest of their content: any changed byte is detected.
//!
//! The digest protects against damage, not against root on this machine, which can write any digest.

use gpuaas_trust::sha256_hex;

/// Text between an object's content and its digest.
const BEFORE_DIGEST: &str = ",\"digest\":\"";
const AFTER_DIGEST: &str = "\"}";
/// Hex digits of the SHA-256 that are kept.
const DIGITS: usize = 32;

/// Returns the object with its digest as its last field, and that digest. `before` is the digest of the preceding object, empty for the
/// first one.
pub(crate) fn with_digest(before: &str, object: &str) -> (String, String) {
    let content = object.trim_end().strip_suffix('}').unwrap_or(object).trim_end();
    let digest = digest(before, content.as_bytes());
    (format!("{content}{BEFORE_DIGEST}{digest}{AFTER_DIGEST}"), digest)
}

/// Returns the digest of an object with a digest; `None` if it does not match the content after `before`.
pub(crate) fn verified(before: &str, object: &[u8]) -> Option<String> {
    let object = object.trim_ascii_end().strip_suffix(AFTER_DIGEST.as_bytes())?;
    let (object, stated) = object.split_at_checked(object.len().checked_sub(DIGITS)?)?;
    let digest = digest(before, object.strip_suffix(BEFORE_DIGEST.as_bytes())?);
    (digest.as_bytes() == stated).then_some(digest)
}

fn digest(before: &str, content: &[u8]) -> String {
    let mut digest = sha256_hex(&[before.as_bytes(), content].concat());
    digest.truncate(DIGITS);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_or_missing_byte_is_detected() {
        let (whole, digest) = with_digest("ab", "{\n  \"a\": 1\n}\n");
        assert_eq!(verified("ab", whole.as_bytes()), Some(digest));
        assert_eq!(verified("ac", whole.as_bytes()), None, "its predecessor differs");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&whole).unwrap()["a"], 1);
        for at in 0..whole.len() {
            let mut flipped = whole.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(verified("ab", &flipped), None, "byte {at}");
            assert_eq!(verified("ab", &whole.as_bytes()[..at]), None, "cut at {at}");
        }
        assert_eq!(verified("", b""), None);
    }
}
