//! Why an artifact was not taken or not given.

use std::{error::Error, io};

use gpuaas_model::{Code, Coded};

/// Both ways to have a release verified.
const UNVERIFIED_NEXT: &str = "name the SHA-256 of the release's sum file (--sums-sha256), as its publisher tells it, \
     or bring a signature over it (--signature) by a key that the setting release-trusted-keys names";
/// Everything that may stand in the way, whichever it is: distinct answers would reveal what listens where.
const UNREACHABLE_NEXT: &str = "see whether the source is right: a folder lies below the one that release-import-dir names, may be read, \
     and is reached through no link; a server has a certificate of release-ca-bundle, and a public address or one that \
     release-private-networks names. The control plane's log has the reason. What was fetched is kept";

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
    /// The sum file does not list a file that is needed, or lists it with two digests.
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
    /// A file ends early.
    #[error("{name} ends early: {why}")]
    Truncated {
        /// Which file.
        name: String,
        /// What the unpacker said.
        why: String,
    },
    /// An archive holds an entry that leads out of it, or that is no file, directory or link.
    #[error("{name} holds {entry:?}, {why}")]
    UnsafePath {
        /// Which file.
        name: String,
        /// The entry's path.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file with the right digest that is not the archive its name says.
    #[error("{name} cannot be read as what its name says: {why}")]
    Malformed {
        /// Which file.
        name: String,
        /// What the unpacker said.
        why: String,
    },
    /// More than a named limit allows.
    #[error("{name} has more than {limit} {unit}")]
    TooLarge {
        /// Which file.
        name: String,
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// Nothing confirms the release's sum file.
    #[error("{sums} is not verified: {why}")]
    Unverified {
        /// The sum file.
        sums: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The folder or server of the release cannot be read, for whatever reason: the log has it.
    #[error("the release cannot be read from its source")]
    Unreachable,
    /// A release lies in a folder or at a URL.
    #[error("a release's source is the absolute path of a folder, or an https URL: {0}")]
    Source(&'static str),
    /// That is no SHA-256.
    #[error("{0:?} is no SHA-256 in lower-case hex")]
    NoDigest(String),
    /// The release's server cannot be reached or does not answer as it should.
    #[error("{name} could not be fetched: {why}")]
    Fetch {
        /// Which file.
        name: String,
        /// What happened. Never holds a URL's query: servers put credentials there.
        why: String,
    },
    /// The disk is full.
    #[error("there is no room for it: {0}")]
    NoRoom(String),
    /// The artifact store, or the folder that is imported from, failed.
    #[error("the artifact store: {0}")]
    Store(String),
}

impl Coded for ArtifactError {
    fn code(&self) -> Code {
        match self {
            Self::DigestMismatch { .. } => Code::ArtifactDigestMismatch,
            Self::Unlisted { .. } => Code::ArtifactUnlisted,
            Self::Missing { .. } => Code::ArtifactMissing,
            Self::Unverified { .. } => Code::ReleaseUnverified,
            Self::Unreachable => Code::ReleaseUnreachable,
            Self::Truncated { .. } => Code::ArtifactTruncated,
            Self::UnsafePath { .. } => Code::ArtifactUnsafePath,
            Self::Malformed { .. } | Self::NoDigest(_) | Self::Source(_) => Code::FieldInvalid,
            Self::TooLarge { .. } => Code::BodyTooLarge,
            Self::Fetch { .. } => Code::Unavailable,
            Self::NoRoom(_) => Code::DiskFull,
            Self::Store(_) => Code::Internal,
        }
    }

    fn field(&self) -> Option<String> {
        Some(if matches!(self, Self::Unverified { .. }) { "sums_sha256" } else { "source" }.to_owned())
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Unverified { .. } => Some(UNVERIFIED_NEXT.to_owned()),
            Self::Unreachable => Some(UNREACHABLE_NEXT.to_owned()),
            Self::Store(_) | Self::NoDigest(_) => None,
            Self::Source(_) => Some("give the folder's whole path, or a URL that begins with https://".to_owned()),
            Self::Fetch { .. } => Some("try again: what was fetched is kept and continued".to_owned()),
            Self::NoRoom(_) => Some("make room on the control plane's disk, then import again".to_owned()),
            Self::TooLarge { .. } => Some("this is not a release of that app".to_owned()),
            Self::DigestMismatch { .. }
            | Self::Unlisted { .. }
            | Self::Missing { .. }
            | Self::Truncated { .. }
            | Self::UnsafePath { .. }
            | Self::Malformed { .. } => Some("get the release anew, with its sum file".to_owned()),
        }
    }
}

impl ArtifactError {
    /// A failure of our own disk, with the path it is about.
    pub(crate) fn disk(path: &std::path::Path, error: impl Error + 'static) -> Self {
        let said = format!("{}: {error}", path.display());
        if is_full(&error) { Self::NoRoom(said) } else { Self::Store(said) }
    }

    /// A failure of what keeps the artifacts.
    pub(crate) fn backend(error: impl Error + 'static) -> Self {
        if is_full(&error) { Self::NoRoom(error.to_string()) } else { Self::Store(error.to_string()) }
    }
}

/// Whether a full disk, or a quota that is used up, is at the bottom of it.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        let inner = cause.get_ref().is_some_and(|inner| is_full(inner));
        inner || matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}
