//! The digest of a plan: what a person has seen, in one word, so that a request can ask for exactly that.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The digest of a plan: `plan-` and 32 hex digits, the first half of a SHA-256. It is about as long as an id, and nobody can make two plans
/// with the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlanDigest(String);

/// A text is not the digest of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the digest of a plan is plan- and {} lower-case hex digits", PlanDigest::HEX_DIGITS)]
pub struct PlanDigestInvalid;

impl PlanDigest {
    /// Number of hex digits.
    pub const HEX_DIGITS: usize = 32;
    const PREFIX: &str = "plan-";

    /// Returns the digest of these bytes.
    pub(crate) fn of(canonical: &[u8]) -> Self {
        let mut digits = sha256_hex(canonical);
        digits.truncate(Self::HEX_DIGITS);
        Self(format!("{}{digits}", Self::PREFIX))
    }

    /// Returns the digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PlanDigest {
    type Err = PlanDigestInvalid;

    fn from_str(text: &str) -> Result<Self, PlanDigestInvalid> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(PlanDigestInvalid)?;
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() == Self::HEX_DIGITS && is_hex { Ok(Self(text.to_owned())) } else { Err(PlanDigestInvalid) }
    }
}

impl TryFrom<String> for PlanDigest {
    type Error = PlanDigestInvalid;

    fn try_from(text: String) -> Result<Self, PlanDigestInvalid> {
        text.parse()
    }
}

impl From<PlanDigest> for String {
    fn from(digest: PlanDigest) -> Self {
        digest.0
    }
}

/// Returns the SHA-256 of these bytes, 64 hex digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns a value as JSON whose keys are sorted, whatever order they arrived in.
pub(crate) fn canonical_json(value: &Value) -> String {
    sorted(value).to_string()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            // A map that keeps the order of insertion is sorted, too.
            let sorted = fields.into_iter().map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(sorted.collect::<Map<String, Value>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_that_is_shown_is_read() {
        let shown = PlanDigest::of(b"plan").to_string();
        assert_eq!(shown.parse::<PlanDigest>().map(|digest| digest.to_string()), Ok(shown.clone()));
        let digits = shown.strip_prefix("plan-").expect("the prefix");
        for other in ["", "plan-", digits, &shown[..36], &format!("{shown}0"), &shown.to_uppercase(), "plan-é"] {
            assert_eq!(other.parse::<PlanDigest>(), Err(PlanDigestInvalid), "{other}");
        }
    }

    #[test]
    fn order_of_keys_does_not_matter_and_order_of_items_does() {
        let of = |text: &str| canonical_json(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(of(r#"{"b":{"y":1,"x":2},"a":[1,2]}"#), r#"{"a":[1,2],"b":{"x":2,"y":1}}"#);
        assert_ne!(of(r#"{"a":[1,2]}"#), of(r#"{"a":[2,1]}"#));
    }
}
