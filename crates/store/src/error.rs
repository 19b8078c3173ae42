//! Errors of the store.

use std::path::Path;

use gpuaas_model::{AllocationId, OperationId, OperationKind};

use crate::bad_row::BadRow;

/// An error of the store. Refusals change nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another object of this kind has the name.
    #[error("{what} {name} already exists")]
    NameTaken {
        /// The kind of object.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Another member uses the allocation.
    #[error("allocation {allocation} is already used by workload {workload}")]
    AllocationInUse {
        /// The allocation in use.
        allocation: AllocationId,
        /// The name of the workload that uses it.
        workload: String,
    },
    /// The node has another open allocation.
    #[error("node {node} is already allocated")]
    NodeAllocated {
        /// The node's name.
        node: String,
    },
    /// Another operation of this workload is open.
    #[error("operation {operation} ({kind}) is in progress")]
    OperationInProgress {
        /// The open operation.
        operation: OperationId,
        /// The kind of the open operation.
        kind: OperationKind,
    },
    /// The row changed since it was read.
    #[error("{what} changed in the meantime")]
    Stale {
        /// The kind of row.
        what: &'static str,
    },
    /// The row does not exist.
    #[error("there is no {what} {id}")]
    NotFound {
        /// The kind of row.
        what: &'static str,
        /// The key that was looked up.
        id: String,
    },
    /// The enrollment token was refused.
    #[error("the enrollment token was refused: {0}")]
    EnrollmentRefused(EnrollmentRefusal),
    /// The key was already certified.
    #[error("a certificate was already issued for this key")]
    KeyReused,
    /// The record needs a proof, but this process has not set a [`crate::RecordProof`].
    #[error("the store has no key to verify its records with")]
    NoProof,
    /// The records of this store are under a sealing key that this process does not hold. Nothing was changed.
    #[error("the store needs the sealing key {id}, which this process does not have")]
    SealingKeyMissing {
        /// The id of the missing key.
        id: String,
    },
    /// A newer version wrote this store.
    #[error("the store has schema version {found}, but this program supports at most {known}")]
    TooNew {
        /// The schema version of the store.
        found: i64,
        /// The newest schema version that this version supports.
        known: i64,
    },
    /// A migration failed; the schema is unchanged.
    #[error("the migration to schema version {version} failed, and nothing was changed: {detail}")]
    Migration {
        /// The schema version that the migration leads to.
        version: i64,
        /// The database's message.
        detail: String,
    },
    /// Other changes or readers held the store for too long, or the change lost a conflict. Nothing was changed; a
    /// retry may succeed.
    #[error("the store is busy")]
    Busy,
    /// The database cannot be reached, or the connection was lost before the commit. Nothing was changed; a retry may
    /// succeed once the database is back.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was lost during a commit, so the change may or may not have happened. Read the rows before
    /// repeating it.
    #[error("the connection was lost during a commit, which may have succeeded: {0}")]
    UnknownOutcome(String),
    /// The database is on another machine, and the connection would neither verify its identity nor be protected from
    /// eavesdropping.
    #[error("the connection to the database at {host:?} needs sslmode=verify-full, but has sslmode={sslmode}")]
    InsecureConnection {
        /// The host in the address.
        host: String,
        /// The effective `sslmode`, from the address and the environment.
        sslmode: &'static str,
    },
    /// The database's disk is full. Nothing was changed; a retry may succeed after space was freed.
    #[error("the database's disk is full: {0}")]
    Full(String),
    /// The store lacks acknowledged changes and refuses every change until a person decides. Nothing was changed.
    #[error("history went back: {0}")]
    HistoryRolledBack(String),
    /// A row holds an invalid value. Created only by [`StoreError::corrupt`].
    #[error("the store has a row that cannot be read: {0}")]
    Corrupt(Box<BadRow>),
    /// The database files are damaged. The error persists until they are restored.
    #[error("{place} is damaged: {detail}")]
    Damaged {
        /// The path of the file, or the name of the database.
        place: String,
        /// The first damage that the database reported.
        detail: String,
    },
    /// Any other failure of the database.
    #[error("the database failed: {0}")]
    Database(String),
}

/// Why an enrollment token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrollmentRefusal {
    /// The token was already redeemed.
    #[error("it was already used")]
    Used,
    /// The token has expired.
    #[error("it has expired")]
    Expired,
    /// The token belongs to another node.
    #[error("it belongs to another node")]
    OtherNode,
    /// The token was not issued by this control plane.
    #[error("it is unknown")]
    Unknown,
}

impl StoreError {
    /// Returns the error for an unreadable row: its table, its key, the column, and the reason.
    pub fn corrupt(
        table: impl Into<String>,
        row: impl std::fmt::Display,
        column: impl Into<String>,
        why: impl std::fmt::Display,
    ) -> Self {
        Self::Corrupt(Box::new(BadRow::new(table, row, column, why)))
    }

    /// Returns the error for a record that cannot be written as JSON. This is a defect, because records are plain data.
    #[allow(clippy::needless_pass_by_value, reason = "a function of `map_err`")]
    pub(crate) fn not_serializable(error: serde_json::Error) -> Self {
        Self::Database(format!("a record cannot be written as JSON: {error}"))
    }

    pub(crate) fn not_found(what: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Returns whether nothing was changed and a retry of the same change may succeed.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::Unreachable(_))
    }

    /// Converts an error of a commit: if the connection is lost after the commit was sent, its outcome is unknown.
    pub(crate) fn into_commit_error(self) -> Self {
        match self {
            Self::Unreachable(why) => Self::UnknownOutcome(why),
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
            _ if is_disconnected(&code) => Self::Unreachable(error.to_string()),
            _ if is_damaged(&code) => {
                Self::Damaged { place: "the PostgreSQL database".to_owned(), detail: error.to_string() }
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

impl StoreError {
    /// Converts an error of SQLite on the given database file.
    pub(crate) fn from_sqlite(error: &rusqlite::Error, file: &Path) -> Self {
        let code = error.sqlite_error().map(|error| error.extended_code.to_string()).unwrap_or_default();
        match code.as_str() {
            code if is_full(code) => Self::Full(error.to_string()),
            code if is_busy(code) => Self::Busy,
            code if is_damaged(code) => Self::Damaged { place: file.display().to_string(), detail: error.to_string() },
            // After a failed write, the commit may still be found in the write-ahead log at the next start.
            _ if error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure) => {
                Self::Unreachable(error.to_string())
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

/// SQLite: SQLITE_FULL, and a failure to enlarge the index of the write-ahead log. PostgreSQL: disk full.
fn is_full(code: &str) -> bool {
    matches!(code, "13" | "4874" | "53100")
}

/// SQLite: SQLITE_BUSY and its extended codes. PostgreSQL: serialization failure, deadlock, lock timeout, and statement
/// timeout.
fn is_busy(code: &str) -> bool {
    matches!(code, "5" | "261" | "517" | "40001" | "40P01" | "55P03" | "57014")
}

/// PostgreSQL: connection failures (class 08), shutdowns, too many connections, and sessions ended for idling in a
/// transaction.
fn is_disconnected(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25P03")
}

/// SQLite: SQLITE_CORRUPT with its extended codes, and SQLITE_NOTADB. PostgreSQL: corrupted data and corrupted index.
fn is_damaged(code: &str) -> bool {
    matches!(code, "11" | "267" | "523" | "779" | "26" | "XX001" | "XX002")
}
