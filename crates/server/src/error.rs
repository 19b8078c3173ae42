//! Errors of starting, running and maintaining a control plane.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gpuaas_artifacts::ArtifactError;
use gpuaas_model::{Code, Coded};
use gpuaas_store::{BadRow, DumpError, StoreError};

/// Reasons why a backup cannot be written or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{}", file_problem(path, source))]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is no backup. The error quotes nothing of it: it may be a file with secrets.
    #[error("{path} is not a backup of GPUaaS")]
    NotABackup {
        /// The file.
        path: PathBuf,
    },
    /// The backup is damaged or incomplete.
    #[error("{path} is not a complete backup: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The defect, as a phrase.
        why: String,
    },
    /// A sealing key cannot be read or written.
    #[error("{0}")]
    Key(String),
    /// The data directory holds another sealing key than the backup.
    #[error("{path} contains another sealing key than the backup")]
    OtherKey {
        /// The file of that key.
        path: PathBuf,
    },
    /// The backup holds no sealing key, and none is configured.
    #[error("the backup contains no sealing key, and none is configured")]
    KeyRequired,
    /// The rows cannot be written or read.
    #[error(transparent)]
    Rows(#[from] DumpError),
    /// An artifact cannot be read or written.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

/// Describes why a file cannot be read or written.
fn file_problem(path: &Path, error: &std::io::Error) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    match (error.kind(), folder) {
        (ErrorKind::NotFound, Some(folder)) => format!("the directory {} does not exist", folder.display()),
        (ErrorKind::NotFound, None) => format!("{} does not exist", path.display()),
        _ => format!("{} cannot be read or written: {error}", path.display()),
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Rows(error.into())
    }
}

/// A reason why the control plane does not start, or why a `gpuaas server` command fails.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory cannot be made or written.
    #[error("the data directory {path} cannot be written: {source}")]
    DataDirNotWritable {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Another process has locked the data directory.
    #[error("the data directory {path} is in use by another process")]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// A sealing key file cannot be read, written or used.
    #[error("the sealing key {path} cannot be used: {source}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// The I/O error; `InvalidData` if the content is no key.
        source: std::io::Error,
    },
    /// The sealing key file is missing, and this start must not make one.
    #[error("the sealing key is missing: there is no file {path}")]
    SealingKeyMissing {
        /// The expected path.
        path: PathBuf,
    },
    /// The data directory was used before, and the store holds no platform. Nothing was changed.
    #[error("the store {place} {lack}{}", was_used(data_dir, left))]
    StoreMissing {
        /// Location of the store, without credentials.
        place: String,
        /// The defect of the store, as a phrase.
        lack: &'static str,
        /// The data directory.
        data_dir: PathBuf,
        /// Names of the files there that a platform left, separated by commas.
        left: String,
    },
    /// `--reinitialize` was given, but the store holds a platform.
    #[error("--reinitialize is refused: {place} contains a control plane")]
    PlatformExists {
        /// Location of the store.
        place: String,
    },
    /// A different next sealing key exists already.
    #[error("{path} already contains a next sealing key")]
    NextSealingKeyExists {
        /// The file of the existing key.
        path: PathBuf,
    },
    /// The rows are encrypted with a sealing key that the key files do not hold.
    #[error("the store is encrypted with the sealing key {needed}, but the key files contain {held}")]
    SealingKeyMismatch {
        /// Id of the key that the rows need.
        needed: String,
        /// Ids of the keys in the files, separated by commas.
        held: String,
    },
    /// The store is shared, and no sealing key file was named.
    #[error("a shared store requires a sealing key file, the same for every replica")]
    SealingKeyRequired,
    /// The store lacks changes that were acknowledged.
    #[error("history went back: {0}")]
    HistoryRolledBack(String),
    /// Nothing proves that the store has all acknowledged changes, for example because the high-water mark is missing.
    #[error("this store may not be the newest: {0}")]
    HistoryUnverified(String),
    /// `accept-history` was run, but the history is complete.
    #[error("the history is complete: there is nothing to accept")]
    HistoryComplete,
    /// A listener cannot bind its address.
    #[error("{what} cannot listen on {address}: {source}")]
    Listen {
        /// The listener, as a phrase.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The store cannot be opened, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row of the store cannot be read. Nothing was changed because of it.
    #[error("{place} has a row that cannot be read: {row}")]
    RowUnreadable {
        /// Location of the store.
        place: String,
        /// The row's table, key and column, and the problem.
        row: Box<BadRow>,
    },
    /// A certificate, key or signature cannot be made or read.
    #[error("certificates: {0}")]
    Trust(String),
    /// The artifact store cannot be opened.
    #[error("artifacts: {0}")]
    Artifacts(String),
    /// The named packages directory has no readable checksum file.
    #[error("there are no packages in {folder}: {source}")]
    Packages {
        /// The directory.
        folder: PathBuf,
        /// The I/O error for its checksum file.
        source: std::io::Error,
    },
    /// The named reimage hook is missing or not executable.
    #[error("the reimage hook {program} cannot be run: {source}")]
    ReimageHook {
        /// The program.
        program: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The named import directory is not an absolute path of an existing directory.
    #[error("releases cannot be imported from {folder}: {source}")]
    ImportDir {
        /// The directory.
        folder: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// An interrupted restore left an incomplete control plane.
    #[error("a restore into the data directory {path} was interrupted")]
    RestoreUnfinished {
        /// The data directory.
        path: PathBuf,
    },
    /// A backup or restore failed.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Any other I/O operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation, as a phrase.
        what: &'static str,
        /// The I/O error.
        source: std::io::Error,
    },
}

/// Describes the evidence that the data directory was used.
fn was_used(data_dir: &Path, left: &str) -> String {
    match left {
        "" => String::new(),
        left => format!(", but {} was used before: it contains {left}", data_dir.display()),
    }
}

/// Returns the code of a store failure; backup and restore use it too.
fn store_code(error: &StoreError) -> Code {
    match error {
        StoreError::TooNew { .. } => Code::StoreTooNew,
        StoreError::HistoryRolledBack(_) => Code::HistoryRolledBack,
        StoreError::Migration { .. } => Code::MigrationFailed,
        StoreError::Unreachable(_) | StoreError::Busy => Code::Unavailable,
        StoreError::Full(_) => Code::DiskFull,
        StoreError::InsecureConnection { .. } => Code::DatabaseUnverified,
        StoreError::Damaged { .. } => Code::StoreDamaged,
        StoreError::Corrupt(_) => Code::RowUnreadable,
        StoreError::SealingKeyMissing { .. } => Code::SealingKeyMismatch,
        _ => Code::Internal,
    }
}

impl ServerError {
    /// Adds the store's location to an error about one of its rows.
    pub(crate) fn with_place(self, place: String) -> Self {
        match self {
            Self::Store(StoreError::Corrupt(row)) => Self::RowUnreadable { place, row },
            other => other,
        }
    }
}

impl Coded for ServerError {
    fn code(&self) -> Code {
        match self {
            Self::DataDirNotWritable { .. } => Code::DataDirNotWritable,
            Self::DataDirInUse { .. } => Code::DataDirInUse,
            Self::NextSealingKeyExists { .. } | Self::PlatformExists { .. } | Self::HistoryComplete => {
                Code::StateConflict
            }
            Self::HistoryRolledBack(_) => Code::HistoryRolledBack,
            Self::HistoryUnverified(_) => Code::HistoryUnverified,
            Self::StoreMissing { .. } => Code::StoreMissing,
            Self::SealingKeyMissing { .. } => Code::SealingKeyMissing,
            Self::Key { source, .. } if source.kind() == ErrorKind::InvalidData => Code::SealingKeyInvalid,
            Self::SealingKeyMismatch { .. } => Code::SealingKeyMismatch,
            Self::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => Code::AddressInUse,
            Self::RowUnreadable { .. } => Code::RowUnreadable,
            Self::Store(error) => store_code(error),
            Self::RestoreUnfinished { .. } => Code::RestoreUnfinished,
            Self::Backup(BackupError::OtherKey { .. }) => Code::StateConflict,
            // A path of the command line, or of a file next to it.
            Self::Backup(BackupError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Code::FieldInvalid
            }
            Self::Backup(BackupError::Rows(DumpError::Store(error))) => store_code(error),
            Self::Packages { .. } => Code::PackagesMissing,
            Self::ReimageHook { .. } => Code::ReimageHookMissing,
            Self::ImportDir { .. } => Code::ReleaseUnreachable,
            Self::SealingKeyRequired | Self::Backup(BackupError::KeyRequired) => Code::SealingKeyRequired,
            Self::Backup(BackupError::Rows(DumpError::NotEmpty(_))) => Code::StoreNotEmpty,
            Self::Backup(BackupError::NotABackup { .. } | BackupError::Invalid { .. } | BackupError::Artifact(_)) => {
                Code::BackupInvalid
            }
            Self::Backup(BackupError::Rows(DumpError::Malformed { .. } | DumpError::Schema { .. })) => {
                Code::BackupInvalid
            }
            Self::Backup(BackupError::Rows(DumpError::Io(_)) | BackupError::File { .. } | BackupError::Key(_))
            | Self::Key { .. }
            | Self::Listen { .. }
            | Self::Trust(_)
            | Self::Artifacts(_)
            | Self::Io { .. } => Code::Internal,
        }
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::DataDirNotWritable { .. } => {
                "choose another with --data-dir, or make it writable for this user".to_owned()
            }
            Self::DataDirInUse { .. } => "stop the other process, or choose another with --data-dir".to_owned(),
            Self::Listen { address, .. } => {
                format!("stop the process there (ss -ltnp 'sport = :{}'), or choose another address", address.port())
            }
            Self::Store(StoreError::TooNew { .. }) => {
                "run a version at least as new as the one that wrote it".to_owned()
            }
            Self::StoreMissing { left, .. } if left.is_empty() => {
                "check --data-dir and the store: gpuaas server check-config".to_owned()
            }
            Self::StoreMissing { data_dir, .. } => format!(
                "bring the store back, or restore a backup (gpuaas server restore FILE); to start without its data: gpuaas server --reinitialize, \
                 which moves the remaining files in {} into a folder there",
                data_dir.display()
            ),
            Self::PlatformExists { .. } => {
                "omit the flag; for another control plane choose another --data-dir and store".to_owned()
            }
            Self::SealingKeyMissing { .. } => {
                "put the key back, from a backup of the data directory or from another replica: no other key decrypts the store's secrets"
                    .to_owned()
            }
            Self::Store(StoreError::Damaged { .. }) => {
                "stop all processes that use it, copy its files, and restore a backup into a fresh --data-dir or database \
                 (gpuaas server restore FILE); gpuaas server verify lists what is damaged"
                    .to_owned()
            }
            Self::RowUnreadable { .. } | Self::Store(StoreError::Corrupt(_)) => {
                "gpuaas server verify lists every row that cannot be read; bring the row back from a backup, or restore the whole backup"
                    .to_owned()
            }
            Self::Store(StoreError::Migration { .. }) => {
                "start the version that ran before, or restore the backup from before the upgrade into an empty database; \
                 docs/operating.md, \"A migration that fails\""
                    .to_owned()
            }
            Self::RestoreUnfinished { .. } => {
                "run the same restore again, with the same settings: it removes the interrupted one and starts over, or \
                 finds that it is complete"
                    .to_owned()
            }
            Self::Backup(BackupError::OtherKey { path }) => {
                format!("move {} away, or restore into a fresh --data-dir", path.display())
            }
            Self::Key { .. } => "restore the file from a backup: secrets cannot be decrypted without it".to_owned(),
            Self::NextSealingKeyExists { .. } => {
                "put it into use (gpuaas keys rotate sealing), or remove the file on every machine".to_owned()
            }
            Self::HistoryRolledBack(_) | Self::Store(StoreError::HistoryRolledBack(_)) => {
                "if this is not the right database, put the right one in its place; otherwise restore a backup (gpuaas server restore FILE), or \
                 continue without the missing changes: gpuaas server accept-history, which revokes every credential"
                    .to_owned()
            }
            Self::HistoryUnverified(_) => {
                "bring the missing file back; if the database is certainly the newest: gpuaas server accept-history --keep-credentials; if it \
                 may be older: gpuaas server accept-history, which revokes every credential"
                    .to_owned()
            }
            Self::HistoryComplete => "start the control plane".to_owned(),
            Self::SealingKeyMismatch { .. } => {
                "give this replica the key files of the others, during a rotation also FILE.next; for a backup, the key of that time"
                    .to_owned()
            }
            Self::SealingKeyRequired => {
                "give every replica the same 32 random bytes in a file: --sealing-key-file, or GPUAAS_SEALING_KEY_FILE"
                    .to_owned()
            }
            Self::Store(StoreError::Unreachable(_)) => {
                "check that the database runs and is reachable from this machine".to_owned()
            }
            Self::ReimageHook { .. } => {
                "set --reimage-hook to an executable program, or omit the setting".to_owned()
            }
            Self::Packages { .. } => {
                "build them with cargo xtask package, and set their folder with --packages-dir".to_owned()
            }
            Self::ImportDir { .. } => {
                "set --release-import-dir to the absolute path of a folder that the control plane can read".to_owned()
            }
            Self::Store(StoreError::InsecureConnection { .. }) => {
                "set sslmode=verify-full in the store's URL (--store-url-file, GPUAAS_STORE_URL), with \
                 sslrootcert=FILE if a private authority signed the database's certificate"
                    .to_owned()
            }
            Self::Store(StoreError::Full(_)) => "make room on the database's disk".to_owned(),
            Self::Backup(BackupError::KeyRequired) => {
                "configure the key that encrypts its secrets: --sealing-key-file, or GPUAAS_SEALING_KEY_FILE".to_owned()
            }
            Self::Backup(BackupError::Rows(DumpError::NotEmpty(_))) => {
                "restore into a fresh --data-dir, or a fresh database".to_owned()
            }
            Self::Backup(_) | Self::Store(_) | Self::Trust(_) | Self::Artifacts(_) | Self::Io { .. } => return None,
        })
    }
}
