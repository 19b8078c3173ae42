//! Opens and makes sealed secrets. Plain bytes live in memory that is wiped, for as long as a call needs them.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::{ActorType, AuditAction, AuditResult, NodeId, SecretId};
use gpuaas_store::{NewAudit, StoreError, TaskRecord, Tx};
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
    /// The bytes of a secret that one of the node's open tasks names; for every other node it does not exist.
    pub async fn secret_for_node(&self, node: NodeId, secret: SecretId) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let mut tx = self.store().begin().await?;
        let task = named_by_open_task(&mut tx, node, secret).await?;
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
        let open = self.store().read().await?.open_tasks(node).await?;
        Ok(open.iter().any(|task| names(&task.params, "sha256", sha256)))
    }

    /// Takes the bytes of a secret that one of the node's open tasks was told to deposit, in place of its empty record.
    pub async fn deposit_for_node(&self, node: NodeId, secret: SecretId, plain: &[u8]) -> Result<(), StoreError> {
        let mut tx = self.store().begin().await?;
        named_by_open_task(&mut tx, node, secret).await?;
        let mut record = tx.secret(secret).await?;
        record.sealed = self.keys().seal(secret, plain).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        record.sha256 = gpuaas_trust::sha256_hex(plain);
        tx.put_secret(&record).await?;
        tx.commit().await
    }
}

/// The open task of that node whose parameters name the secret by its id.
async fn named_by_open_task(tx: &mut Tx, node: NodeId, secret: SecretId) -> Result<TaskRecord, StoreError> {
    let id = secret.to_string();
    let open = tx.open_tasks(node).await?;
    open.into_iter()
        .find(|task| names(&task.params, "secret_id", &id))
        .ok_or(StoreError::NotFound { what: "secret", id })
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
