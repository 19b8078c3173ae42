//! Commands for the chain of the audit: show, verify.

use gpuaas_model::{AuditAction, Code, Permission, Timestamp};
use gpuaas_store::AuditSealRecord;
use serde_json::{Value, json};

use super::audit;
use crate::{
    audit_chain::{self, ChainError, ChainHead, Verification},
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
}

/// Returns the state of the chain without verifying it.
pub async fn show(engine: &Engine, caller: &Caller) -> Result<ChainView, CommandError> {
    caller.require(Permission::ArchivesRead)?;
    let mut reader = engine.store().read().await?;
    let newest = reader.newest_audit_seal().await?;
    let (records, sealed) = (reader.last_audit().await?, newest.as_ref().map_or(0, |seal| seal.last));
    let oldest = reader.chained_records(sealed, 1).await?.pop();
    let unsealed_since = oldest.and_then(|oldest| oldest.record).map(|record| record.at);
    Ok(ChainView { records, newest, unsealed: records.saturating_sub(sealed), unsealed_since })
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
    let verified = audit_chain::verify(engine, expected).await?;
    if let Some(broken) = &verified.broken {
        tracing::error!(defect = %broken.defect, detail = broken.detail, "the chain of the audit is broken");
    }
    let metadata = json!({
        "result": verified.result().as_str(), "records": verified.records, "seals": verified.seals,
        "head": verified.head.as_ref().map(|head| format!("{}:{}", head.seal, head.digest)),
        "expected": expected.map(|head| format!("{}:{}", head.seal, head.digest)),
        "defect": verified.broken.as_ref().map(|broken| &broken.detail),
    });
    match record(engine, caller, metadata).await {
        Ok(()) => Ok(verified),
        // A broken audit may accept no record, for example if its next number is taken, which must not hide the result.
        Err(error) if verified.broken.is_some() => {
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
            error @ (ChainError::Ahead { .. } | ChainError::Archive { .. }) => {
                Self::new(Code::Internal, error.to_string())
            }
        }
    }
}
