//! Backup and restore: rows, artifacts and, if the data directory holds them, the sealing keys, in one tar file of mode 0600.
//!
//! Guarantees: a backup holds the rows of one snapshot with every artifact that they name, and appears complete or not at all. A restore
//! into an empty store checks everything before it writes anything, and leaves nothing when it fails. An interrupted restore must be run
//! again; no control plane serves before that. A backup of SQLite can be restored into PostgreSQL and the reverse.
//!
//! Credentials that were revoked after the backup are valid again in its rows. A restore therefore revokes every token, signing key and
//! node identity that it brings back, makes a one-time admin token, and reports what an operator must create again.
//!
//! Deliberately absent from a backup: the text of a one-time admin token, and which replicas were alive.

mod archive;
mod restore;
mod staging;
mod write;

use gpuaas_model::{AuditAction, OwnActor};
use gpuaas_store::{NewAudit, Store, StoreError};
use serde::{Deserialize, Serialize};

pub use restore::{Restored, restore};
pub use write::backup;

/// Format version of backups.
const FORMAT: u32 = 1;
/// Names of the tar members. [`MANIFEST`] is the last: a file without it is truncated.
const ARTIFACTS: &str = "artifacts/";
const ROWS: &str = "rows.jsonl";
const SEALING_KEY: &str = "sealing.key";
const NEXT_SEALING_KEY: &str = "sealing-next.key";
const MANIFEST: &str = "backup.json";

/// Description of a backup, stored in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version of the file.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// Time of the backup, RFC 3339.
    pub made_at: String,
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 of the rows member, in hex.
    pub rows_sha256: String,
    /// Number of artifacts, archives included.
    pub artifacts: u64,
    /// Whether the backup holds the sealing key that decrypts the secrets in its rows.
    pub holds_sealing_key: bool,
}

/// Records a backup, which copies every secret, or a restore, which replaces everything, in the audit.
async fn audit(store: &Store, action: AuditAction, manifest: &Manifest) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    let metadata = serde_json::json!({ "rows": manifest.rows, "sha256": manifest.rows_sha256 });
    tx.append_audit(&NewAudit::of_own(OwnActor::Operator, action, "control-plane".to_owned(), metadata)).await?;
    tx.commit().await
}
