//! Why the store refused or failed.

use std::path::Path;

use gpuaas_model::{AllocationId, OperationId, OperationKind};

use crate::bad_row::BadRow;

/// Why the store refused or failed. Refusals leave everything as it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The name is in use.
    #[error("{what} {name} exists already")]
    NameTaken {
        /// Of what kind of object.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Another member sits on the allocation.
    #[error("allocation {allocation} is already used by workload {workload}")]
    AllocationInUse {
        /// Which.
        allocation: AllocationId,
        /// The workload's name.
        workload: String,
    },
    /// Another allocation holds the node.
    #[error("node {node} is already allocated")]
    NodeAllocated {
        /// The node's name.
        node: String,
    },
    /// Another operation of this workload is open.
    #[error("operation {operation} ({kind}) is under way")]
    OperationInProgress {
        /// Which.
        operation: OperationId,
        /// What for.
        kind: OperationKind,
    },
    /// The row changed since it was read.
    #[error("{what} changed in the meantime")]
    Stale {
        /// Which kind of row.
        what: &'static str,
    },
    /// There is no such row.
    #[error("there is no {what} {id}")]
    NotFound {
        /// Which kind of row.
        what: &'static str,
        /// What was looked for.
        id: String,
    },
    /// The enrollment token does not open anything.
    #[error("the enrollment token was refused: {0}")]
    EnrollmentRefused(EnrollmentRefusal),
    /// The key was certified before.
    #[error("the key was certified before")]
    KeyReused,
    /// The record needs a proof, and nobody has said yet how records are proven.
    #[error("the store was not told how it proves its records")]
    NoProof,
    /// The records of this store are under a sealing key that this process does not hold. Nothing was changed.
    #[error("the sealing key {id} that this store is under is not held here")]
    SealingKeyMissing {
        /// The key's id.
        id: String,
    },
    /// A newer version wrote this store.
    #[error("the store has schema {found}, and this version knows {known}")]
    TooNew {
        /// The store's schema.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// A migration failed, and the schema is as it was before.
    #[error("the schema could not be brought to version {version}, and nothing was changed: {detail}")]
    Migration {
        /// The version that the migration leads to.
        version: i64,
        /// What the database says.
        detail: String,
    },
    /// Others hold the store for too long, or the change gave way to another. Nothing of it was done; trying again helps.
    #[error("the store is busy")]
    Busy,
    /// The database cannot be reached, or went away before the commit. Nothing was changed; trying again helps when it is back.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The database went away during a commit: rows alone say whether it happened. Not to be repeated without looking.
    #[error("the database went away during a commit, which may have happened: {0}")]
    Unsettled(String),
    /// The database is on another machine, and nothing would show that it is the right one, or keep others from reading along.
    #[error("the database at {host:?} would be spoken to with sslmode={sslmode}, which over a network is not enough")]
    Unverified {
        /// The host that the address names.
        host: String,
        /// What counts of the address and of the environment.
        sslmode: &'static str,
    },
    /// The database has no room for the change. Nothing of it was done; trying again helps once somebody has made room.
    #[error("the database's disk is full: {0}")]
    Full(String),
    /// The store lacks what was acknowledged, and takes no change until a person decides. Nothing was changed.
    #[error("history went back: {0}")]
    HistoryWentBack(String),
    /// A row does not hold what it must. Made by [`StoreError::corrupt`] alone.
    #[error("the store has a row that cannot be read: {0}")]
    Corrupt(Box<BadRow>),
    /// The database's own files are damaged. It stays so until somebody restores them.
    #[error("{place} is damaged: {detail}")]
    Damaged {
        /// The file, or the database.
        place: String,
        /// What the database found first.
        detail: String,
    },
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(String),
}

/// Why an enrollment token does not open anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrollmentRefusal {
    /// It was redeemed before.
    #[error("it was used")]
    Used,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// It is another node's.
    #[error("it is another node's")]
    Foreign,
    /// Nobody here issued it.
    #[error("it is unknown")]
    Unknown,
}

impl StoreError {
    /// A row that cannot be read: its table, its key, the column, and what is wrong there.
    pub fn corrupt(
        table: impl Into<String>,
        row: impl std::fmt::Display,
        column: impl Into<String>,
        why: impl std::fmt::Display,
    ) -> Self {
        Self::Corrupt(Box::new(BadRow::new(table, row, column, why)))
    }

    /// A record that cannot be written as JSON: a defect, as records are plain data.
    #[allow(clippy::needless_pass_by_value, reason = "a function of `map_err`")]
    pub(crate) fn unwritable(error: serde_json::Error) -> Self {
        Self::Database(format!("a record cannot be written as JSON: {error}"))
    }

    pub(crate) fn not_found(what: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Whether nothing was changed and the same change may succeed if it is tried again.
    pub const fn is_worth_repeating(&self) -> bool {
        matches!(self, Self::Busy | Self::Unreachable(_))
    }

    /// The same failure, of a commit: once it was sent, a lost connection leaves open whether it happened.
    pub(crate) fn of_commit(self) -> Self {
        match self {
            Self::Unreachable(why) => Self::Unsettled(why),
            settled => settled,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        match &error {
            sqlx::Error::Io(_) => Self::Unreachable(error.to_string()),
            _ if is_full(&code) => Self::Full(error.to_string()),
            _ if is_busy(&code) => Self::Busy,
            _ if is_gone(&code) => Self::Unreachable(error.to_string()),
            _ if is_damaged(&code) => {
                Self::Damaged { place: "the PostgreSQL database".to_owned(), detail: error.to_string() }
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

impl StoreError {
    /// A failure of SQLite with the database in that file.
    pub(crate) fn of_sqlite(error: &rusqlite::Error, file: &Path) -> Self {
        let code = error.sqlite_error().map(|error| error.extended_code.to_string()).unwrap_or_default();
        match code.as_str() {
            code if is_full(code) => Self::Full(error.to_string()),
            code if is_busy(code) => Self::Busy,
            code if is_damaged(code) => Self::Damaged { place: file.display().to_string(), detail: error.to_string() },
            // A commit whose write failed may be found in the log at the next start.
            _ if error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure) => {
                Self::Unreachable(error.to_string())
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

/// SQLite's SQLITE_FULL, and its failure to enlarge the index of its log; PostgreSQL's full disk.
fn is_full(code: &str) -> bool {
    matches!(code, "13" | "4874" | "53100")
}

/// SQLite's SQLITE_BUSY and its extended forms; PostgreSQL's serialization failure, deadlock, lock that was not to be had in time, and
/// statement that took too long.
fn is_busy(code: &str) -> bool {
    matches!(code, "5" | "261" | "517" | "40001" | "40P01" | "55P03" | "57014")
}

/// PostgreSQL's class of connection failures, its shutdowns, too many connections, and the end of a session that rested in a change.
fn is_gone(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25P03")
}

/// SQLite's SQLITE_CORRUPT with its extended forms, and SQLITE_NOTADB; PostgreSQL's damaged data and damaged index.
fn is_damaged(code: &str) -> bool {
    matches!(code, "11" | "267" | "523" | "779" | "26" | "XX001" | "XX002")
}
