//! Commands for the chain of the audit: show, verify.

use gpuaas_model::{AuditAction, Code, Permission, Timestamp};
use gpuaas_store::{AuditSealRecord, StoreError};
use serde_json::{Value, json};

use super::audit;
use crate::{
    audit_chain::{self, ChainError, ChainHead, Verification, readable},
    caller::Caller,
    engine::Engine,
    error::CommandError,
};

/// The present state of the chain, as its rows show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainView {
    /// The number of audit records that were ever written.
    pub records: u64,
    /// The newest seal; `None` before the first.
    pub newest: Option<AuditSealRecord>,
    /// The number of records that no seal covers yet.
    pub unsealed: u64,
    /// When the oldest of them was written.
    pub unsealed_since: Option<Timestamp>,
    /// Why this process seals nothing; `None` while it seals.
    pub stopped: Option<String>,
}

/// Returns the state of the chain without verifying it.
pub async fn show(engine: &Engine, caller: &Caller) -> Result<ChainView, CommandError> {
    caller.require(Permission::ArchivesRead)?;
    let remembered = engine.sealer_memory().newest();
    let mut reader = engine.store().read().await?;
    let stopped = match audit_chain::sealed_state(&mut reader, remembered).await {
        Ok(_) => None,
        Err(ChainError::Store(error)) if !matches!(error, StoreError::Corrupt(_)) => return Err(error.into()),
        Err(error) => Some(error.to_string()),
    };
    let newest = readable(reader.newest_audit_seal().await)?.ok().flatten();
    let records = readable(reader.last_audit().await)?.unwrap_or(0);
    let unsealed = records.saturating_sub(newest.as_ref().map_or(0, |seal| seal.last));
    let unsealed_since = audit_chain::unsealed_audit_since(&mut reader).await?;
    Ok(ChainView { records, newest, unsealed, unsealed_since, stopped })
}

/// Verifies the whole chain and that it contains `expected`. One at a time in each process, because each reads the whole audit.
pub async fn verify(
    engine: &Engine,
    caller: &Caller,
    expected: Option<&ChainHead>,
) -> Result<Verification, CommandError> {
    caller.require(Permission::ArchivesRead)?;
    let _permit = engine.audit_verifications().try_acquire().map_err(|_| {
        CommandError::new(Code::RateLimited, "another verification of the audit is under way")
            .then("wait until it has ended, then try again")
    })?;
    let verified = audit_chain::verify((engine.store(), engine.archive_files()), engine.keys(), expected).await?;
    let first = verified.defects.first();
    if let Some(first) = first {
        let defects = verified.defects_found;
        tracing::error!(defects, first = %first.kind, detail = first.detail, "the chain of the audit is broken");
    }
    let metadata = json!({
        "result": verified.result().as_str(), "records": verified.records, "seals": verified.seals,
        "head": verified.head.as_ref().map(ChainHead::to_string),
        "expected": expected.map(ChainHead::to_string),
        "defects": verified.defects_found, "defect": first.map(|first| &first.detail),
    });
    match record(engine, caller, metadata).await {
        Ok(()) => Ok(verified),
        // A broken audit may accept no record, for example if its next number is taken, which must not hide the result.
        Err(error) if verified.defects_found > 0 => {
            tracing::error!(%error, "the verification of the audit could not be recorded");
            Ok(verified)
        }
        Err(error) => Err(error),
    }
}

async fn record(engine: &Engine, caller: &Caller, metadata: Value) -> Result<(), CommandError> {
    let mut tx = engine.store().begin().await?;
    audit(&mut tx, caller, AuditAction::AuditVerify, "audit".to_owned(), None, metadata).await?;
    tx.commit().await?;
    Ok(())
}

impl From<ChainError> for CommandError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Store(error) => error.into(),
            ChainError::Keys(error) => error.into(),
            error @ (ChainError::Ahead { .. } | ChainError::Removed { .. }) => {
                Self::new(Code::Internal, error.to_string())
            }
            error @ ChainError::Archive { .. } => Self::new(Code::Unavailable, error.to_string())
                .then("make sure that the control plane can read its artifact store, then try again"),
        }
    }
}
