//! The outputs of a successful step: facts, endpoints and secrets of its workload.

use gpuaas_model::{Code, Endpoint, Fault, FaultClass, NextAction};
use gpuaas_planner::{SecretPart, StepOutput, StepSpec};
use gpuaas_store::{StoreError, Tx};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{engine::Engine, error::EngineError, rows::OperationRows, secrets::seal_secret};

/// The reasons for which outputs are not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The result is not what the step must return. The attempt fails with this fault.
    #[error("the result is not accepted: {}", .0.summary)]
    Refused(Box<Fault>),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreError> for OutputError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

/// Stores the outputs that the app finds in a step's result.
pub(crate) async fn store_outputs(
    engine: &Engine,
    tx: &mut Tx,
    rows: &mut OperationRows,
    spec: &StepSpec,
    result: &Value,
) -> Result<(), OutputError> {
    let app = &engine.catalog().require(&rows.of.workload.app)?.app;
    let outputs = app.step_outputs(spec, result, &rows.of.view()).map_err(OutputError::Refused)?;
    for output in outputs {
        match output {
            StepOutput::Fact(name, value) => {
                rows.of.workload.facts.insert(name, value);
            }
            StepOutput::Endpoint { purpose, address } => {
                let endpoints = &mut rows.of.workload.endpoints;
                endpoints.retain(|known| known.purpose != purpose || known.member != spec.member);
                endpoints.push(Endpoint { purpose, address, member: spec.member });
            }
            StepOutput::Deposited { name, sha256 } => check_deposit(tx, rows, &name, &sha256).await?,
            StepOutput::Composed { name, parts } => compose(engine, tx, rows, name, &parts).await?,
        }
    }
    Ok(())
}

/// Refuses unless the stored secret is the one that the node reported as deposited.
async fn check_deposit(tx: &mut Tx, rows: &OperationRows, name: &str, sha256: &str) -> Result<(), OutputError> {
    let stored = match rows.of.secrets.get(name) {
        Some(secret) => Some(tx.secret(secret.id).await?),
        None => None,
    };
    if stored.is_some_and(|stored| !stored.sealed.is_empty() && stored.sha256 == sha256) {
        return Ok(());
    }
    Err(OutputError::Refused(Box::new(Fault {
        code: Code::Unavailable.to_string(),
        class: FaultClass::Retryable,
        summary: format!("the node reported the secret {name}, but it did not arrive"),
        evidence: None,
        next: NextAction::text("nothing; the step is retried"),
    })))
}

/// Stores a secret that is composed of others.
async fn compose(
    engine: &Engine,
    tx: &mut Tx,
    rows: &OperationRows,
    name: String,
    parts: &[SecretPart],
) -> Result<(), EngineError> {
    let mut plain = Zeroizing::new(Vec::new());
    for part in parts {
        match part {
            SecretPart::Text(text) => plain.extend_from_slice(text.as_bytes()),
            SecretPart::Secret(of) => {
                let view = rows.of.secrets.get(of).ok_or_else(|| EngineError::not_found("secret", of))?;
                let record = tx.secret(view.id).await?;
                let opened = engine.keys().unseal(view.id, &record.sealed);
                let opened = opened.map_err(|error| StoreError::corrupt("secrets", view.id, "sealed", error))?;
                plain.extend_from_slice(&opened);
            }
        }
    }
    let record = seal_secret(engine, rows.operation.workload, name, &plain)?;
    Ok(tx.put_secret(&record).await?)
}
