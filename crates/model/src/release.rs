//! Verification of imported releases.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a release was verified at import. The release's checksum file lists a digest for each file; this verified the checksum file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifiedBy {
    /// SHA-256 of the checksum file as given in the request, 64 hex digits.
    SumsSha256(String),
    /// Signature of the trusted key with this id, 16 hex digits.
    Key(String),
    /// Not verified: the setting `allow-unverified-releases` allowed it.
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
