//! Opens and creates sealed secrets. Plaintext exists only in memory that is wiped after the call.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::{AuditAction, EnrolledNode, SecretId, WorkloadId};
use gpuaas_store::{NewAudit, Reader, SecretRecord, StoreError, TaskRecord};
use gpuaas_wire::task::NamedSecrets;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    effects::Secrets,
    engine::Engine,
    error::EngineError,
    ownership::{self, AccessError},
};

/// The secrets of one workload, opened with the engine's keys.
pub(crate) struct SealedSecrets {
    engine: Arc<Engine>,
    workload: WorkloadId,
}

impl SealedSecrets {
    pub(crate) fn of(engine: Arc<Engine>, workload: WorkloadId) -> Self {
        Self { engine, workload }
    }
}

#[async_trait]
impl Secrets for SealedSecrets {
    async fn open(&self, id: SecretId) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut reader = self.engine.store().read().await.map_err(|error| error.to_string())?;
        let record = reader.secret(id).await.map_err(|error| error.to_string())?;
        if record.workload != Some(self.workload) {
            return Err(format!("this workload has no secret {id}"));
        }
        if record.sealed.is_empty() {
            return Err(format!("the secret {} does not exist yet", record.name));
        }
        self.engine.keys().unseal(id, &record.sealed).map_err(|error| error.to_string())
    }
}

/// An artifact that a node may fetch at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactAccess {
    sha256: String,
}

impl ArtifactAccess {
    /// SHA-256 digest of the artifact's bytes, 64 hex digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Engine {
    /// Returns the bytes of a secret that one of the node's open tasks reads. For every other node the secret does not exist. Writes an
    /// audit record.
    pub async fn secret_for_node(
        &self,
        node: EnrolledNode,
        secret: SecretId,
    ) -> Result<Zeroizing<Vec<u8>>, EngineError> {
        let may = |task: &TaskRecord| self.named_secrets(task).reads.contains(&secret);
        // Checks on a reader first, so that rejected requests never take the write lock.
        authorizing_task(&mut self.store().read().await?, node, ("secret", secret), may).await?;
        let mut tx = self.store().begin().await?;
        let task = authorizing_task(&mut tx, node, ("secret", secret), may).await?;
        let record = tx.secret(secret).await?;
        check_same_workload(&record, &task)?;
        let plain = self.keys().unseal(secret, &record.sealed);
        let plain = plain.map_err(|error| StoreError::corrupt("secrets", secret, "sealed", error))?;
        let node = tx.node(node.node).await?;
        let metadata = json!({ "name": record.name, "task": task.id });
        tx.append_audit(&NewAudit {
            project: task.project,
            workload: task.workload,
            correlation: Some(task.correlation),
            ..NewAudit::of_node(&node.name, AuditAction::SecretRead, format!("secret/{secret}"), metadata)
        })
        .await?;
        tx.commit().await?;
        Ok(plain)
    }

    /// Returns the secrets that a task names; none if no app of this control plane defines its type.
    fn named_secrets(&self, task: &TaskRecord) -> NamedSecrets {
        let definition = self.catalog().task(task.task_type);
        definition.map(|definition| (definition.named_secrets)(&task.params)).unwrap_or_default()
    }

    /// Returns access to an artifact that one of the node's open tasks names. For every other node the artifact does not exist.
    pub async fn artifact_for_node(&self, node: EnrolledNode, sha256: &str) -> Result<ArtifactAccess, EngineError> {
        let may = |task: &TaskRecord| has_field(&task.params, "sha256", sha256);
        authorizing_task(&mut self.store().read().await?, node, ("artifact", sha256), may).await?;
        Ok(ArtifactAccess { sha256: sha256.to_owned() })
    }

    /// Stores the bytes of a secret that one of the node's open tasks deposits, in place of its empty record.
    pub async fn deposit_for_node(
        &self,
        node: EnrolledNode,
        secret: SecretId,
        plain: &[u8],
    ) -> Result<(), EngineError> {
        let may = |task: &TaskRecord| self.named_secrets(task).deposits.contains(&secret);
        authorizing_task(&mut self.store().read().await?, node, ("secret", secret), may).await?;
        let mut tx = self.store().begin().await?;
        let task = authorizing_task(&mut tx, node, ("secret", secret), may).await?;
        let mut record = tx.secret(secret).await?;
        check_same_workload(&record, &task)?;
        record.sealed = self.keys().seal(secret, plain)?;
        record.sha256 = gpuaas_trust::sha256_hex(plain);
        tx.put_secret(&record).await?;
        Ok(tx.commit().await?)
    }
}

/// Seals a secret of a workload under a new id.
pub(crate) fn seal_secret(
    engine: &Engine,
    workload: WorkloadId,
    name: String,
    plain: &[u8],
) -> Result<SecretRecord, EngineError> {
    let id = SecretId::generate(&*engine.ports().clock, &*engine.ports().entropy);
    let bytes = engine.keys().seal(id, plain)?;
    Ok(SecretRecord {
        id,
        workload: Some(workload),
        name,
        sealed: bytes,
        sha256: gpuaas_trust::sha256_hex(plain),
        created_at: engine.ports().clock.now(),
    })
}

/// Finds the node's open task that permits the access, while the task's project holds the node. Otherwise the object does not exist for the
/// node.
async fn authorizing_task(
    reader: &mut Reader,
    node: EnrolledNode,
    (what, name): (&'static str, impl std::fmt::Display),
    may: impl Fn(&TaskRecord) -> bool,
) -> Result<TaskRecord, EngineError> {
    for task in reader.open_tasks(node.node).await?.into_iter().filter(|task| task.epoch == node.epoch && may(task)) {
        match ownership::for_task(reader, &task).await {
            Ok(access) if access.node() == node => return Ok(task),
            Ok(_) | Err(AccessError::NotHeld(_)) => {}
            Err(AccessError::Store(error)) => return Err(error.into()),
        }
    }
    Err(EngineError::not_found(what, name))
}

/// Refuses a secret of another workload than the task's, regardless of the task's parameters.
fn check_same_workload(secret: &SecretRecord, task: &TaskRecord) -> Result<(), EngineError> {
    let is_same = secret.workload.is_some() && secret.workload == task.workload;
    if is_same { Ok(()) } else { Err(EngineError::not_found("secret", secret.id)) }
}

/// Returns whether a field of the given name, anywhere in the parameters, holds the given text.
fn has_field(params: &Value, field: &str, text: &str) -> bool {
    match params {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| (name == field && value == text) || has_field(value, field, text))
        }
        Value::Array(items) => items.iter().any(|item| has_field(item, field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
