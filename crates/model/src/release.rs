//! What an imported release rests on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What verified a release when it was imported. Every file of it is listed with its digest in the release's sum file; this verified the sum file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifiedBy {
    /// The request named the SHA-256 of the sum file, 64 hex digits.
    SumsSha256(String),
    /// A signature of the trusted key with this id, 16 hex digits.
    Key(String),
    /// Nothing: the setting `allow-unverified-releases` let it in.
    Nothing,
}

impl fmt::Display for VerifiedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SumsSha256(sha256) => write!(f, "sums-sha256:{sha256}"),
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}
