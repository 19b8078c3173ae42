//! The errors of a host.

use std::io;

use camino::Utf8PathBuf;

/// The reason why a host did not carry out a call.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The path is not absolute, or contains `..`.
    #[error("{path} is not a valid path on the host")]
    InvalidPath {
        /// The refused path.
        path: Utf8PathBuf,
    },
    /// The operation may not touch the object at this path: a link, a pipe, a device, or a file with a second name.
    #[error("refused to use {path}: {at} {what}")]
    UnsafePath {
        /// The path that the operation was called with.
        path: Utf8PathBuf,
        /// The unfit object: `path` itself, or a parent of it.
        at: Utf8PathBuf,
        /// The reason, as the end of a sentence that begins with `at`.
        what: &'static str,
    },
    /// The file system refused.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The failed action, as a verb.
        action: &'static str,
        /// The path that the action was for.
        path: Utf8PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than the caller's limit.
    #[error("{path} is longer than {bytes_max} bytes")]
    TooLong {
        /// The file.
        path: Utf8PathBuf,
        /// The caller's limit, in bytes.
        bytes_max: u64,
    },
    /// The init does not know the unit, or refused the call.
    #[error("unit {unit}: {message}")]
    Unit {
        /// The unit's name.
        unit: String,
        /// The init's reason.
        message: String,
    },
    /// The file does not have the required content.
    #[error("{path} has {found}, expected {expected}")]
    ContentMismatch {
        /// The file.
        path: Utf8PathBuf,
        /// The content that was found, as far as it was read.
        found: String,
        /// The required content.
        expected: String,
    },
    /// The kernel cannot look up paths safely.
    #[error("kernel {release} does not offer openat2: use Linux 5.6 or newer and allow the call in seccomp filters")]
    KernelTooOld {
        /// The kernel's release.
        release: String,
    },
    /// The machine was not booted by an init that this crate supports.
    #[error("this host was not booted with systemd: {0} does not exist")]
    NotBooted(Utf8PathBuf),
    /// The init sent an unusable answer.
    #[error("the host's init: {0}")]
    Init(String),
    /// The init cannot be reached, or went away before it answered: the host is shutting down, and how far the call came is unknown.
    #[error("cannot reach the host's init: {0}")]
    InitUnreachable(String),
    /// The caller dropped the call before it took effect: nothing was changed.
    #[error("cancelled, because the caller stopped waiting")]
    Cancelled,
    /// A program could not be run, or did not exit.
    #[error("{program}: {message}")]
    Program {
        /// The program's path.
        program: Utf8PathBuf,
        /// The reason.
        message: String,
    },
}

impl HostError {
    /// Returns true if the disk is full or a quota is used up.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_disk_full(source))
    }

    pub(crate) fn file(action: &'static str, path: &camino::Utf8Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// Returns true if an operation failed because the disk is full or a quota is used up.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
