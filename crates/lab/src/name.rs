//! Node names.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Prefix of all link names; a link name has at most 15 characters.
pub(super) const LINKS: &str = "gpulab";
/// Longest name: the network link `gpulab-NAME` may have at most 15 characters.
const LENGTH_MAX: usize = 15 - LINKS.len() - 1;

/// A node's name: a DNS label of lowercase letters, digits and inner hyphens, short enough for a link name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// Why a text is no node name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Empty or too long.
    #[error("invalid node name `{0}`: it has {len} characters, and 1 to {LENGTH_MAX} are allowed", len = .0.chars().count())]
    Length(String),
    /// No DNS label.
    #[error(
        "invalid node name `{0}`: it must begin with a lowercase letter, continue with lowercase letters, digits and \
         hyphens, and not end with a hyphen"
    )]
    Label(String),
}

impl NodeName {
    /// Returns the name of the node that `up` creates as number `number`, counted from 1.
    pub(super) fn numbered(number: u8) -> Self {
        Self(format!("node-{number}"))
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if !(1..=LENGTH_MAX).contains(&text.chars().count()) {
            return Err(BadName::Length(text.to_owned()));
        }
        let is_label = text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if is_label { Ok(Self(text.to_owned())) } else { Err(BadName::Label(text.to_owned())) }
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_valid() {
        for number in [1, 9, 99] {
            let name = NodeName::numbered(number);
            assert_eq!(name.as_str().parse(), Ok(name));
        }
    }

    #[test]
    fn long_names_and_invalid_labels_are_refused() {
        for text in ["Node", "1st", "-a", "a-", "a_b", "a.b", "a b", "ä", "../x", "a\n"] {
            assert_eq!(text.parse::<NodeName>(), Err(BadName::Label(text.to_owned())));
        }
        for text in ["", "ninechars"] {
            assert_eq!(text.parse::<NodeName>(), Err(BadName::Length(text.to_owned())));
        }
        assert_eq!("gpulab-".len() + "eightch8".len(), 15);
        assert!("eightch8".parse::<NodeName>().is_ok());
    }
}
