//! Task-signing keys: which there are, and a new one in place of the one that signs.

use gpuaas_model::{AuditAction, Code, KeyState, Permission};
use gpuaas_store::SigningKeyRecord;
use serde_json::json;

use super::audit;
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    key_rotation::{announce, behind},
};

/// Nodes that are named as holding a rotation up; more are counted.
const NODES_NAMED: usize = 5;

/// A key, and what its next state waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct SigningKeyView {
    /// The key.
    pub key: SigningKeyRecord,
    /// In words; absent when nothing is to come by itself.
    pub waiting_for: Option<String>,
}

/// Every key there ever was, oldest first.
pub async fn list(engine: &Engine, caller: &Caller) -> Result<Vec<SigningKeyView>, CommandError> {
    caller.must(Permission::PlatformRead)?;
    let mut reader = engine.store().read().await?;
    let mut views = Vec::new();
    for key in reader.signing_keys().await?.into_iter().map(|stored| stored.key) {
        let waiting_for = match key.state {
            KeyState::Staged => {
                let mut names = Vec::new();
                for session in behind(&mut reader, key.version).await? {
                    names.push(reader.node(session.node).await?.name.to_string());
                }
                Some(format!("nodes to take it: {}", named(&names)))
            }
            KeyState::Grace => {
                Some(format!("tasks that it signed to end: {}", reader.open_tasks_signed_by(&key.key_id).await?))
            }
            KeyState::Active | KeyState::Retired | KeyState::Revoked => None,
        };
        views.push(SigningKeyView { key, waiting_for });
    }
    Ok(views)
}

/// Makes a key that will sign in place of the present one. What follows happens by itself; `list` and events tell how far it is.
pub async fn rotate(engine: &Engine, caller: &Caller) -> Result<SigningKeyRecord, CommandError> {
    caller.must(Permission::KeysWrite)?;
    let ports = engine.ports();
    let mut tx = engine.store().begin().await?;
    let under_way = tx.signing_keys().await?.into_iter().map(|stored| stored.key);
    let mut under_way = under_way.filter(|key| matches!(key.state, KeyState::Staged | KeyState::Grace));
    if let Some(key) = under_way.next() {
        let detail = format!("a rotation is under way: key {} is {}", key.key_id, key.state);
        return Err(
            CommandError::new(Code::StateConflict, detail).then("wait for it: `gpuaas keys list` says for what")
        );
    }
    let version = tx.key_set_version().await? + 1;
    let made = engine.keys().make(KeyState::Staged, version, ports.clock.now(), &*ports.entropy);
    let mut made = made.map_err(|error| CommandError::new(Code::Internal, error.to_string()))?;
    made.key.correlation = Some(caller.correlation);
    tx.insert_signing_key(&made).await?;
    announce(&mut tx, &made.key).await?;
    let target = format!("signing-key/{}", made.key.key_id);
    audit(&mut tx, caller, AuditAction::KeysRotate, target, None, json!({ "version": version })).await?;
    tx.commit().await?;
    Ok(made.key)
}

fn named(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        few if few.len() <= NODES_NAMED => few.join(", "),
        many => format!("{} and {} more", many[..NODES_NAMED].join(", "), many.len() - NODES_NAMED),
    }
}
