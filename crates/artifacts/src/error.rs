//! Errors of importing and reading artifacts.

use std::{error::Error, io};

use gpuaas_model::{Code, Coded};

/// Advice for [`ArtifactError::Unverified`]: both ways to verify a release.
const UNVERIFIED_NEXT: &str = "give the SHA-256 of the release's checksum file as its publisher states it (--sums-sha256), \
     or a signature of the checksum file (--signature) by a key in the setting release-trusted-keys";
/// Advice for [`ArtifactError::Unreachable`]: one text for all causes, because distinct ones would reveal where services listen.
const UNREACHABLE_NEXT: &str = "check the source. A directory must be readable, be below release-import-dir, and not be reached through a symbolic link. \
     The server of a URL must have a certificate by an authority in release-ca-bundle, and an address that is public or in \
     release-private-networks; a repeated import continues the download. The control plane's log has the reason";

/// Why an artifact or a release was not imported or read. A failed import leaves no partial artifact visible.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The bytes do not have the expected digest.
    #[error("{name} has digest {found}, not {expected}")]
    DigestMismatch {
        /// Name of the file.
        name: String,
        /// SHA-256 of the bytes.
        found: String,
        /// Expected SHA-256.
        expected: String,
    },
    /// The checksum file does not list a needed file, or lists it with two digests.
    #[error("the release's {sums} does not list {name}")]
    Unlisted {
        /// Name of the checksum file.
        sums: String,
        /// Name of the file.
        name: String,
    },
    /// A needed file does not exist or cannot be opened as a regular file.
    #[error("the release lacks {name}")]
    Missing {
        /// Name of the file.
        name: String,
    },
    /// A file is cut off or empty.
    #[error("{name} ends early: {why}")]
    Truncated {
        /// Name of the file.
        name: String,
        /// Message of the reader or decompressor.
        why: String,
    },
    /// An archive has an entry that leads out of it, that is no file, directory or link, or whose extended header is refused.
    #[error("{name} contains {entry:?}, {why}")]
    UnsafePath {
        /// Name of the file.
        name: String,
        /// The entry's path, at most its first 200 bytes.
        entry: String,
        /// Why the entry is refused.
        why: &'static str,
    },
    /// A file is not the kind of archive that its name indicates, or reading it failed.
    #[error("{name} cannot be read as the kind of file that its name states: {why}")]
    Malformed {
        /// Name of the file.
        name: String,
        /// Message of the reader or decompressor.
        why: String,
    },
    /// A named limit is exceeded.
    #[error("{name} has more than {limit} {unit}")]
    TooLarge {
        /// Name of the file.
        name: String,
        /// The limit, in `unit`.
        limit: u64,
        /// What is counted, for example `bytes`.
        unit: &'static str,
    },
    /// The release's checksum file has no digest or signature that the settings accept.
    #[error("{sums} is not verified: {why}")]
    Unverified {
        /// Name of the checksum file.
        sums: String,
        /// Why verification failed.
        why: &'static str,
    },
    /// The request names another version than the release.
    #[error("the release states the version {stated}")]
    OtherVersion {
        /// The version of the release.
        stated: String,
    },
    /// The release's folder or server cannot be read. The reason is only logged.
    #[error("the release cannot be read from its source")]
    Unreachable,
    /// The source is neither the absolute path of a folder nor a usable `https` URL.
    #[error("a release's source must be the absolute path of a folder or an https URL: {0}")]
    Source(&'static str),
    /// The text is not a SHA-256 of 64 lower-case hex digits.
    #[error("{0:?} is not a SHA-256 in lower-case hex")]
    InvalidDigest(String),
    /// The release's server refused a file, or its response broke off too often. A server that is not reached is [`Self::Unreachable`].
    #[error("{name} could not be fetched: {why}")]
    Fetch {
        /// Name of the file.
        name: String,
        /// What happened. Contains no URL, because servers put credentials into queries.
        why: String,
    },
    /// The disk is full or its quota is used up.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The artifact store, the download folder, the CA bundle or a release's file could not be read or written.
    #[error("the artifact store failed: {0}")]
    Store(String),
}

impl Coded for ArtifactError {
    fn code(&self) -> Code {
        match self {
            Self::DigestMismatch { .. } => Code::ArtifactDigestMismatch,
            Self::Unlisted { .. } => Code::ChecksumMissing,
            Self::Missing { .. } => Code::ArtifactMissing,
            Self::Unverified { .. } => Code::ReleaseUnverified,
            Self::Unreachable => Code::ReleaseUnreachable,
            Self::Truncated { .. } => Code::ArtifactTruncated,
            Self::UnsafePath { .. } => Code::ArtifactUnsafePath,
            Self::Malformed { .. } | Self::InvalidDigest(_) | Self::Source(_) | Self::OtherVersion { .. } => {
                Code::FieldInvalid
            }
            Self::TooLarge { .. } => Code::BodyTooLarge,
            Self::Fetch { .. } => Code::Unavailable,
            Self::DiskFull(_) => Code::DiskFull,
            Self::Store(_) => Code::Internal,
        }
    }

    fn field(&self) -> Option<String> {
        let field = match self {
            Self::Unverified { .. } => "sums_sha256",
            Self::OtherVersion { .. } => "version",
            _ => "source",
        };
        Some(field.to_owned())
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Unverified { .. } => Some(UNVERIFIED_NEXT.to_owned()),
            Self::Unreachable => Some(UNREACHABLE_NEXT.to_owned()),
            Self::Store(_) | Self::InvalidDigest(_) => None,
            Self::Source(_) => Some("give the folder's absolute path, or a URL that begins with https://".to_owned()),
            Self::OtherVersion { .. } => Some("omit the version, or import the release that you want".to_owned()),
            Self::Fetch { .. } => Some("try again: the download continues where it stopped".to_owned()),
            Self::DiskFull(_) => Some("make room on the control plane's disk, then import again".to_owned()),
            Self::TooLarge { .. } => Some("check that the source is a release of this app".to_owned()),
            Self::DigestMismatch { .. }
            | Self::Unlisted { .. }
            | Self::Missing { .. }
            | Self::Truncated { .. }
            | Self::UnsafePath { .. }
            | Self::Malformed { .. } => Some("download the release again, with its checksum file".to_owned()),
        }
    }
}

impl ArtifactError {
    /// Converts a failure of the control plane's own disk; names the path.
    pub(crate) fn disk(path: &std::path::Path, error: impl Error + 'static) -> Self {
        let text = format!("{}: {error}", path.display());
        if is_full(&error) { Self::DiskFull(text) } else { Self::Store(text) }
    }

    /// Converts a failure of the object store.
    pub(crate) fn backend(error: impl Error + 'static) -> Self {
        if is_full(&error) { Self::DiskFull(error.to_string()) } else { Self::Store(error.to_string()) }
    }
}

/// Returns whether a full disk or a used-up quota is among the causes.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        let inner = cause.get_ref().is_some_and(|inner| is_full(inner));
        inner || matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}
