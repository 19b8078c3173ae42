//! Opens and makes sealed secrets. Plain bytes live in memory that is wiped, for as long as a call needs them.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::{ActorType, AuditAction, AuditResult, NodeId, SecretId};
use gpuaas_store::{NewAudit, Reader, StoreError, TaskRecord};
use gpuaas_wire::task::{NamedSecrets, named_secrets};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{effects::Secrets, engine::Engine};

/// The store's secrets, opened with the engine's keys.
pub struct SealedSecrets {
    engine: Arc<Engine>,
}

impl SealedSecrets {
    /// Secrets of that engine's store.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[async_trait]
impl Secrets for SealedSecrets {
    async fn open(&self, id: SecretId) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut reader = self.engine.store().read().await.map_err(|error| error.to_string())?;
        let record = reader.secret(id).await.map_err(|error| error.to_string())?;
        if record.sealed.is_empty() {
            return Err(format!("the secret {} is not there yet", record.name));
        }
        self.engine.keys().unseal(id, &record.sealed).map_err(|error| error.to_string())
    }
}

impl Engine {
    /// The bytes of a secret that one of the node's open tasks is to read; for every other node it does not exist.
    pub async fn secret_for_node(&self, node: NodeId, secret: SecretId) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let may = |named: &NamedSecrets| named.reads.contains(&secret);
        // What a node asks for in vain costs nobody the writer's turn.
        open_task(&mut self.store().read().await?, node, secret, may).await?;
        let mut tx = self.store().begin().await?;
        let task = open_task(&mut tx, node, secret, may).await?;
        let record = tx.secret(secret).await?;
        let plain =
            self.keys().unseal(secret, &record.sealed).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let node = tx.node(node).await?;
        tx.append_audit(&NewAudit {
            actor: format!("node/{}", node.name),
            actor_type: ActorType::Node,
            action: AuditAction::SecretRead,
            target: format!("secret/{secret}"),
            project: task.project,
            result: AuditResult::Accepted,
            correlation: Some(task.correlation),
            metadata: json!({ "name": record.name, "task": task.id }),
        })
        .await?;
        tx.commit().await?;
        Ok(plain)
    }

    /// Whether one of the node's open tasks names the artifact of that digest; for every other node it does not exist.
    pub async fn names_artifact(&self, node: NodeId, sha256: &str) -> Result<bool, StoreError> {
        let open = open_tasks(&mut self.store().read().await?, node).await?;
        Ok(open.iter().any(|task| names(&task.params, "sha256", sha256)))
    }

    /// Takes the bytes of a secret that one of the node's open tasks was told to deposit, in place of its empty record.
    pub async fn deposit_for_node(&self, node: NodeId, secret: SecretId, plain: &[u8]) -> Result<(), StoreError> {
        let may = |named: &NamedSecrets| named.deposits.contains(&secret);
        open_task(&mut self.store().read().await?, node, secret, may).await?;
        let mut tx = self.store().begin().await?;
        open_task(&mut tx, node, secret, may).await?;
        let mut record = tx.secret(secret).await?;
        record.sealed = self.keys().seal(secret, plain).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        record.sha256 = gpuaas_trust::sha256_hex(plain);
        tx.put_secret(&record).await?;
        tx.commit().await
    }
}

/// The node's open task that may do with the secret what is asked.
async fn open_task(
    reader: &mut Reader,
    node: NodeId,
    secret: SecretId,
    may: impl Fn(&NamedSecrets) -> bool,
) -> Result<TaskRecord, StoreError> {
    let open = open_tasks(reader, node).await?;
    open.into_iter()
        .find(|task| may(&named_secrets(task.task_type, &task.params)))
        .ok_or_else(|| StoreError::NotFound { what: "secret", id: secret.to_string() })
}

/// The node's open tasks of its present enrollment: what an earlier one was told is not for the machine that has come since.
async fn open_tasks(reader: &mut Reader, node: NodeId) -> Result<Vec<TaskRecord>, StoreError> {
    let epoch = reader.node(node).await?.epoch;
    let mut open = reader.open_tasks(node).await?;
    open.retain(|task| task.epoch == epoch);
    Ok(open)
}

/// Whether a field of that name anywhere in the parameters holds that text.
fn names(params: &Value, field: &str, text: &str) -> bool {
    match params {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| (name == field && value == text) || names(value, field, text))
        }
        Value::Array(items) => items.iter().any(|item| names(item, field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
