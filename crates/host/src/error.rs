//! Why a host did not do what it was asked.

use std::io;

use camino::Utf8PathBuf;

/// Why a host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A path that is not absolute, or holds `..`.
    #[error("{path} is no path that may be touched")]
    Path {
        /// Which.
        path: Utf8PathBuf,
    },
    /// What lies there is nothing that the operation may touch: a link, a pipe, a device, a file with a second name.
    #[error("{path} is not touched: {at} {what}")]
    Unfit {
        /// Of which operation.
        path: Utf8PathBuf,
        /// What is unfit: the path itself, or what stands in its way.
        at: Utf8PathBuf,
        /// Why.
        what: &'static str,
    },
    /// The file system refused.
    #[error("{action} {path}: {source}")]
    File {
        /// What was done.
        action: &'static str,
        /// To what.
        path: Utf8PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is longer than the caller reads.
    #[error("{path} is longer than {bytes_max} bytes")]
    TooLong {
        /// Which.
        path: Utf8PathBuf,
        /// The caller's limit.
        bytes_max: u64,
    },
    /// The init does not know the unit, or refused.
    #[error("unit {unit}: {message}")]
    Unit {
        /// Which.
        unit: String,
        /// Why.
        message: String,
    },
    /// The file holds other bytes than it must.
    #[error("{path} holds {found}, not {expected}")]
    OtherBytes {
        /// Which.
        path: Utf8PathBuf,
        /// What it holds, as far as it was read.
        found: String,
        /// What it must hold.
        expected: String,
    },
    /// The kernel cannot look paths up safely.
    #[error(
        "the kernel ({release}) does not answer openat2: Linux 5.6 or newer is needed, and no filter that forbids it"
    )]
    KernelTooOld {
        /// The kernel's release.
        release: String,
    },
    /// No init that is known here has booted this machine.
    #[error("systemd has not booted this host: there is no {0}")]
    NotBooted(Utf8PathBuf),
    /// The init does not make sense.
    #[error("the host's init: {0}")]
    Init(String),
    /// The init cannot be reached, or went away before it answered: the host goes down, and nobody knows how far it came.
    #[error("the host's init is gone: {0}")]
    InitGone(String),
    /// Whoever asked for it does not wait any more: nothing was changed.
    #[error("nobody waits for it any more")]
    GivenUp,
    /// A program did not run or end.
    #[error("{program}: {message}")]
    Program {
        /// Which.
        program: Utf8PathBuf,
        /// Why.
        message: String,
    },
}

impl HostError {
    /// Whether the disk has no room, or a quota is used up.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if no_room(source))
    }

    pub(crate) fn file(action: &'static str, path: &camino::Utf8Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// Whether an operation failed for want of room.
pub fn no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
