//! Names that people choose for objects.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A DNS label (RFC 1123): 1 to 63 of `a-z`, `0-9` and `-`, with a letter or digit at both ends.
///
/// Nodes, projects and workloads have a name of this form, because a node's name becomes its KubeNode's name and Kubernetes accepts nothing
/// else: a kubelet with an underscore in its name cannot register.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text is not a valid [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name must have 1 to 63 characters of a-z, 0-9 and -, and begin and end with a letter or digit")]
pub struct NameError;

impl Name {
    /// Maximum length in bytes: the limit of a DNS label.
    pub const LENGTH_BYTES_MAX: usize = 63;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = bytes.first().copied().is_some_and(edge) && bytes.last().copied().is_some_and(edge);
        let inside = bytes.iter().all(|&byte| edge(byte) || byte == b'-');
        if ends && inside && bytes.len() <= Self::LENGTH_BYTES_MAX { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_labels_are_names() {
        for good in ["a", "gpu-07", "9lives", &"x".repeat(63)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "GPU", "a_b", "a.b", "../x", "a b", "ü", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
