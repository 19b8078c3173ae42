//! Why the store refused or failed.

use gpuaas_model::{AllocationId, OperationId, OperationKind};

/// Why the store refused or failed. Refusals leave everything as it was.
#[derive(Debug, thiserror::Error)]
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
    /// A newer version wrote this store.
    #[error("the store has schema {found}, and this version knows {known}")]
    TooNew {
        /// The store's schema.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// Others hold the store for too long; trying again helps.
    #[error("the store is busy")]
    Busy,
    /// A row does not say what it must.
    #[error("the store holds something that this version cannot read: {0}")]
    Corrupt(String),
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
    pub(crate) fn not_found(what: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::PoolTimedOut => Self::Busy,
            sqlx::Error::Database(database) if is_busy(database.code().as_deref()) => Self::Busy,
            _ => Self::Database(error.to_string()),
        }
    }
}

/// SQLite's SQLITE_BUSY and its extended forms; PostgreSQL's serialization failure and deadlock.
fn is_busy(code: Option<&str>) -> bool {
    matches!(code, Some("5" | "261" | "517" | "40001" | "40P01"))
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Corrupt(error.to_string())
    }
}
