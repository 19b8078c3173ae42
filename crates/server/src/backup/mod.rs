//! Backup and restore: rows, artifacts and, where the data directory holds it, the sealing key, in one tar file of mode 0600.
//!
//! Guarantees: a backup is the rows of one moment with every artifact that they name, and appears whole or not at all; a restore into an
//! empty store checks everything before it writes anything, and leaves nothing when it fails. One that was interrupted is run again, and no control plane
//! serves before. A backup of SQLite restores into PostgreSQL and the other way round.
//!
//! What was withdrawn since the backup was made is good again among its rows. So a restore ends every token, signing key and node identity that it
//! brings back, makes a one-time admin token, and says what a person has to make anew.
//!
//! Deliberately absent: the text of a one-time admin token, and who was alive.

mod archive;
mod restore;
mod staging;
mod write;

use std::path::PathBuf;

use gpuaas_artifacts::ArtifactError;
use gpuaas_model::{ActorType, AuditAction, AuditResult, OwnActor};
use gpuaas_store::{DumpError, NewAudit, Store, StoreError};
use serde::{Deserialize, Serialize};

pub use restore::{Restored, restore};
pub(crate) use staging::refuse_unfinished;
pub use write::backup;

/// The form of a backup.
const FORMAT: u32 = 1;
/// Members of the file. [`MANIFEST`] is the last: a file without it broke off.
const ARTIFACTS: &str = "artifacts/";
const ROWS: &str = "rows.jsonl";
const SEALING_KEY: &str = "sealing.key";
const NEXT_SEALING_KEY: &str = "sealing-next.key";
const MANIFEST: &str = "backup.json";

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of the file.
    pub format: u32,
    /// The version that wrote it.
    pub version: String,
    /// When, RFC 3339.
    pub made_at: String,
    /// How many rows.
    pub rows: u64,
    /// SHA-256 of them.
    pub rows_sha256: String,
    /// How many artifacts.
    pub artifacts: u64,
    /// Whether the key that opens the secrets among the rows is in it.
    pub holds_sealing_key: bool,
}

/// Why a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read or written.
    #[error("{path} cannot be read or written: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no backup, or not a whole one.
    #[error("{path} is no whole backup: {why}")]
    NotWhole {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A sealing key cannot be read or kept.
    #[error("{0}")]
    Key(String),
    /// Another sealing key lies where that of the backup belongs.
    #[error("another sealing key than the backup's lies in {path}")]
    OtherKey {
        /// Its file.
        path: PathBuf,
    },
    /// Nothing would open the secrets.
    #[error("the backup holds no sealing key, and none was named")]
    KeyRequired,
    /// The rows.
    #[error(transparent)]
    Rows(#[from] DumpError),
    /// An artifact.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Rows(error.into())
    }
}

/// Both are audited: one takes every secret out, the other replaces all there is.
async fn audit(store: &Store, action: AuditAction, manifest: &Manifest) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.append_audit(&NewAudit {
        actor: OwnActor::Operator.to_string(),
        actor_type: ActorType::ControlPlane,
        by: None,
        action,
        target: "control-plane".to_owned(),
        project: None,
        result: AuditResult::Accepted,
        correlation: None,
        metadata: serde_json::json!({ "rows": manifest.rows, "sha256": manifest.rows_sha256 }),
    })
    .await?;
    tx.commit().await
}
