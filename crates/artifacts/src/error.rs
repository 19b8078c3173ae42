//! Why an artifact was not taken or not given.

use gpuaas_model::{Code, Coded};

/// Why an artifact was not taken or not given. Nothing of it is visible.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The bytes are others than the digest says.
    #[error("{name} has digest {found}, not {expected}")]
    DigestMismatch {
        /// Which file.
        name: String,
        /// What the bytes are.
        found: String,
        /// What they should be.
        expected: String,
    },
    /// The sum file does not list a file that is needed.
    #[error("the release's {sums} does not list {name}")]
    Unlisted {
        /// The sum file.
        sums: String,
        /// Which file.
        name: String,
    },
    /// A file is not there.
    #[error("the release lacks {name}")]
    Missing {
        /// Which file.
        name: String,
    },
    /// An archive ends early.
    #[error("{name} ends early: {why}")]
    Truncated {
        /// Which file.
        name: String,
        /// What the unpacker said.
        why: String,
    },
    /// An archive names a path that leads elsewhere.
    #[error("{name} names {path}")]
    UnsafePath {
        /// Which file.
        name: String,
        /// The path.
        path: String,
    },
    /// The artifact store failed.
    #[error("the artifact store: {0}")]
    Store(String),
}

impl Coded for ArtifactError {
    fn code(&self) -> Code {
        match self {
            Self::DigestMismatch { .. } => Code::ArtifactDigestMismatch,
            Self::Unlisted { .. } => Code::ArtifactUnlisted,
            Self::Missing { .. } => Code::ArtifactMissing,
            Self::Truncated { .. } => Code::ArtifactTruncated,
            Self::UnsafePath { .. } => Code::ArtifactUnsafePath,
            Self::Store(_) => Code::Internal,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Store(_) => None,
            _ => Some("get the release anew, with its sum file".to_owned()),
        }
    }
}
