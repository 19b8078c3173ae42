//! Reads all that a control plane keeps, and changes nothing: rows, sealed values and artifacts.
//!
//! It takes no lock, and may run beside the control plane: it sees the rows of one moment.

use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::record_proof;
use gpuaas_store::{ArtifactRecord, Contents, Finding, FindingKind, Store, StoreError, VerifiedRows};
use gpuaas_trust::SealingKeys;
use serde::Serialize;

use crate::{bootstrap, error::ServerError, history, options::ServerOptions, prior_use, sealing_key::KeyFiles};

/// What was read, and what is wrong with it.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// The file or database.
    pub store: String,
    /// Its schema.
    pub schema: i64,
    /// How many rows were read.
    pub rows: u64,
    /// How many sealed values were opened.
    pub sealed: u64,
    /// How many artifacts were read whole.
    pub artifacts: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Reads what `options` name.
pub async fn verify(options: &ServerOptions) -> Result<Verified, ServerError> {
    let store = options.store();
    match store.inspect().await {
        Ok(Contents::Platform) => {}
        Ok(_) => prior_use::require_platform(options).await?,
        // What of it can be read is.
        Err(StoreError::Damaged { .. } | StoreError::Corrupt(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut findings = Vec::new();
    let keys = match KeyFiles::of(options).and_then(|files| files.keys()) {
        Ok(keys) => Some(keys),
        Err(error) => {
            findings.push(of_key(error.to_string()));
            None
        }
    };
    match history::doubt(options).await {
        Ok(doubt) => findings.extend(doubt.map(of_history)),
        // Damage, and a row that cannot be read, are told with the others.
        Err(ServerError::Store(StoreError::Damaged { .. } | StoreError::Corrupt(_))) => {}
        Err(error) => return Err(error),
    }
    let rows = rows(options, keys).await?;
    let VerifiedRows { schema, rows, sealed, artifacts: named, findings: of_rows } = rows;
    findings.extend(of_rows);
    let mut artifacts = 0;
    let kept = options.artifacts_to_read();
    let mut digests: Vec<(String, String)> =
        named.into_iter().map(|of| (of.sha256, format!("{} {} of {}", of.app, of.version, of.name))).collect();
    digests.sort();
    digests.dedup_by(|one, other| one.0 == other.0);
    for (sha256, name) in digests {
        let read = match &kept {
            Ok(kept) => kept.verify(&sha256).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(_) => artifacts += 1,
            Err(detail) => {
                let place = format!("artifact {sha256} ({name})");
                findings.push(Finding { kind: FindingKind::Artifact, place, detail });
            }
        }
    }
    Ok(Verified { store: store.place(), schema, rows, sealed, artifacts, findings })
}

/// The rows, read with the keys if those are the ones that they are under: with others every code would look forged.
async fn rows(options: &ServerOptions, keys: Option<SealingKeys>) -> Result<VerifiedRows, ServerError> {
    let store = options.store();
    let lacking = match (&keys, store.sealing().await) {
        (Some(keys), Ok(Some(record))) => record.ids().find(|id| !keys.holds(id)).cloned(),
        // A row that cannot be read is told with the others.
        (_, Ok(_) | Err(StoreError::Corrupt(_) | StoreError::Damaged { .. })) => None,
        (_, Err(error)) => return Err(error.into()),
    };
    let proof = keys.filter(|_| lacking.is_none()).map(|keys| record_proof(keys.into()));
    let mut rows = store.verify(proof, &bootstrap::SEALED_SETTINGS).await?;
    if let Some(id) = lacking {
        rows.findings.insert(0, of_key(format!("the rows are under the sealing key {id}, which is not held here")));
    }
    Ok(rows)
}

/// Logs each artifact that rows name and that is not here in its whole length: a start goes on without it, and says so. Digests are compared where an
/// artifact is laid out.
pub(crate) async fn name_missing_artifacts(store: &Store, kept: &ArtifactStore) -> Result<(), ServerError> {
    let named = store.read().await?.artifacts(None, None).await?;
    for artifact in named {
        let size = kept.size(&artifact.sha256).await;
        if !matches!(size, Ok(Some(size)) if size == artifact.size_bytes) {
            let found = match size {
                Ok(Some(size)) => format!("it has {size} bytes of {}", artifact.size_bytes),
                Ok(None) => "it is not there".to_owned(),
                Err(error) => error.to_string(),
            };
            let ArtifactRecord { app, version, name, sha256, .. } = artifact;
            tracing::error!(
                app,
                version,
                name,
                sha256,
                found,
                "an artifact is missing or cut: import that release again"
            );
        }
    }
    Ok(())
}

fn of_history(detail: String) -> Finding {
    Finding { kind: FindingKind::History, place: history::MARK.to_owned(), detail }
}

fn of_key(detail: String) -> Finding {
    let detail = format!("{detail}; no sealed value was opened, and no code was checked");
    Finding { kind: FindingKind::Key, place: "sealing key".to_owned(), detail }
}
