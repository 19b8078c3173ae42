//! Verifies everything that a control plane stores, without changing it: rows, sealed values and artifacts.
//!
//! Takes no lock and may run while the control plane runs: it reads one consistent snapshot of the rows.

use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::record_proof;
use gpuaas_store::{ArtifactRecord, Contents, Finding, FindingKind, Store, StoreError, VerifiedRows};
use gpuaas_trust::SealingKeys;
use serde::Serialize;

use crate::{
    bootstrap, data_dir, error::ServerError, history, options::ServerOptions, prior_use, sealing_key::KeyFiles,
};

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Location of the store: a file or a database, without credentials.
    pub store: String,
    /// Schema version.
    pub schema: i64,
    /// Number of rows read.
    pub rows: u64,
    /// Number of sealed values decrypted.
    pub sealed: u64,
    /// Number of artifacts read completely with a matching digest.
    pub artifacts: u64,
    /// Problems found; empty if there are none.
    pub findings: Vec<Finding>,
}

/// Verifies the store and the artifacts that `options` name.
pub async fn verify(options: &ServerOptions) -> Result<Verified, ServerError> {
    let store = options.store();
    match store.inspect().await {
        Ok(Contents::Platform) => {}
        Ok(_) => prior_use::require_platform(options).await?,
        // A damaged store is verified as far as it can be read.
        Err(StoreError::Damaged { .. } | StoreError::Corrupt(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut findings = Vec::new();
    let keys = match KeyFiles::of(options).and_then(|files| files.keys()) {
        Ok(keys) => Some(keys),
        Err(error) => {
            findings.push(key_finding(error.to_string()));
            None
        }
    };
    match history::problem(options).await {
        Ok(problem) => findings.extend(problem.map(history_finding)),
        // The verification of the rows below reports damage and unreadable rows.
        Err(ServerError::Store(StoreError::Damaged { .. } | StoreError::Corrupt(_))) => {}
        Err(error) => return Err(error),
    }
    let rows = rows(options, keys).await?;
    let VerifiedRows { schema, rows, sealed, artifacts: named, findings: row_findings } = rows;
    findings.extend(row_findings);
    let mut artifacts = 0;
    let store_to_check = options.artifacts_read_only();
    let mut digests: Vec<(String, String)> =
        named.into_iter().map(|of| (of.sha256, format!("{} {} of {}", of.app, of.version, of.name))).collect();
    digests.sort();
    digests.dedup_by(|one, other| one.0 == other.0);
    for (sha256, name) in digests {
        let read = match &store_to_check {
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

/// Verifies the rows. Uses the keys only if they are the ones of the rows: with others every authentication code would look forged.
async fn rows(options: &ServerOptions, keys: Option<SealingKeys>) -> Result<VerifiedRows, ServerError> {
    let store = options.store();
    let lacking = match (&keys, store.sealing().await) {
        (Some(keys), Ok(Some(record))) => record.ids().find(|id| !keys.holds(id)).cloned(),
        // The verification below reports an unreadable row.
        (_, Ok(_) | Err(StoreError::Corrupt(_) | StoreError::Damaged { .. })) => None,
        (_, Err(error)) => return Err(error.into()),
    };
    let proof = keys.filter(|_| lacking.is_none()).map(|keys| record_proof(keys.into()));
    let mut rows = store.verify(proof, &bootstrap::SEALED_SETTINGS).await?;
    if let Some(id) = lacking {
        rows.findings
            .insert(0, key_finding(format!("the rows are encrypted with the sealing key {id}, which is missing")));
    }
    Ok(rows)
}

/// Logs each artifact that rows name and that is missing or has another size. The control plane starts without it. Digests are compared
/// when an artifact is used.
pub(crate) async fn log_missing_artifacts(store: &Store, artifacts: &ArtifactStore) -> Result<(), ServerError> {
    let named = store.read().await?.artifacts(None, None).await?;
    for artifact in named {
        let size = artifacts.size(&artifact.sha256).await;
        if !matches!(size, Ok(Some(size)) if size == artifact.size_bytes) {
            let found = match size {
                Ok(Some(size)) => format!("it has {size} of {} bytes", artifact.size_bytes),
                Ok(None) => "the file does not exist".to_owned(),
                Err(error) => error.to_string(),
            };
            let ArtifactRecord { app, version, name, sha256, .. } = artifact;
            tracing::error!(
                app,
                version,
                name,
                sha256,
                found,
                "an artifact is missing or truncated: import its release again"
            );
        }
    }
    Ok(())
}

fn history_finding(detail: String) -> Finding {
    Finding { kind: FindingKind::History, place: data_dir::MARK.to_owned(), detail }
}

fn key_finding(detail: String) -> Finding {
    let detail = format!("{detail}; no secret was decrypted, and no authentication code was checked");
    Finding { kind: FindingKind::Key, place: "sealing key".to_owned(), detail }
}
