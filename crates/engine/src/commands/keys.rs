//! Commands for task-signing keys: list, rotate, revoke.

use gpuaas_model::{AuditAction, Code, KeyEvent, KeyState, Permission, Timestamp};
use gpuaas_store::{Reader, ReplicaLiveness, SigningKeyRecord, Tx};
use serde_json::json;

use super::audit;
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    key_rotation::{announce, change, sessions_behind},
};

/// Number of nodes named as blocking a rotation; further ones are counted.
const NODES_NAMED: usize = 5;

/// A key, and the condition for its next state.
#[derive(Clone, Debug, PartialEq)]
pub struct SigningKeyView {
    /// The key.
    pub key: SigningKeyRecord,
    /// Description of what the next state waits for; `None` if it waits for nothing, or no state follows automatically.
    pub waiting_for: Option<String>,
}

/// Lists every key that ever existed, oldest first.
pub async fn list(engine: &Engine, caller: &Caller) -> Result<Vec<SigningKeyView>, CommandError> {
    caller.require(Permission::PlatformRead)?;
    let mut reader = engine.store().read().await?;
    let mut views = Vec::new();
    for key in reader.signing_keys().await?.into_iter().map(|stored| stored.key) {
        let waiting_for = match key.state {
            KeyState::Staged => {
                let mut names = Vec::new();
                for session in sessions_behind(&mut reader, key.version).await? {
                    names.push(reader.node(session.node).await?.name.to_string());
                }
                (!names.is_empty()).then(|| format!("nodes to accept the new key: {}", join_names(&names)))
            }
            KeyState::Grace => match reader.open_tasks_signed_by(&key.key_id).await? {
                0 => None,
                open => Some(format!("unfinished tasks of the old key: {open}")),
            },
            KeyState::Active | KeyState::Retired | KeyState::Revoked => None,
        };
        views.push(SigningKeyView { key, waiting_for });
    }
    Ok(views)
}

/// Creates a key that will replace the active one. The rotation continues automatically; [`list`] and events show its progress.
pub async fn rotate(engine: &Engine, caller: &Caller) -> Result<SigningKeyRecord, CommandError> {
    caller.require(Permission::KeysWrite)?;
    let ports = engine.ports();
    let mut tx = engine.store().begin().await?;
    require_same_version(engine, &mut tx).await?;
    let under_way = tx.signing_keys().await?.into_iter().map(|stored| stored.key);
    let mut under_way = under_way.filter(|key| matches!(key.state, KeyState::Staged | KeyState::Grace));
    if let Some(key) = under_way.next() {
        let detail = format!("a rotation is under way: key {} is {}", key.key_id, key.state);
        return Err(
            CommandError::new(Code::StateConflict, detail).then("wait for it: `gpuaas keys list` shows its progress")
        );
    }
    let version = tx.key_set_version().await? + 1;
    let made = engine.keys().generate_signing_key(KeyState::Staged, version, tx.database_now().await?, &*ports.entropy);
    let mut made = made.map_err(|error| CommandError::new(Code::Internal, error.to_string()))?;
    made.key.correlation = Some(caller.correlation);
    tx.insert_signing_key(&made).await?;
    announce(&mut tx, &made.key).await?;
    let target = format!("signing-key/{}", made.key.key_id);
    audit(&mut tx, caller, AuditAction::KeysRotate, target, None, json!({ "version": version })).await?;
    tx.commit().await?;
    Ok(made.key)
}

/// Refuses while a live replica runs another version: it may not know this version's rotation, and would sign or send keys by its own
/// rules.
pub(crate) async fn require_same_version(engine: &Engine, reader: &mut Reader) -> Result<(), CommandError> {
    let lives = reader.replicas().await?;
    let is_other =
        |life: &&ReplicaLiveness| !life.time_left.is_zero() && life.replica.version != env!("CARGO_PKG_VERSION");
    let Some(other) = lives.iter().filter(|life| life.replica.id != engine.replica()).find(is_other) else {
        return Ok(());
    };
    let (id, version, own) = (other.replica.id, &other.replica.version, env!("CARGO_PKG_VERSION"));
    let detail = format!("replica {id} runs version {version}, but this one runs {own}");
    Err(CommandError::new(Code::ReplicaVersionsDiffer, detail)
        .then("bring all replicas to one version first: `gpuaas replica list` shows their versions"))
}

/// Revokes a key at once: nodes refuse its tasks from now on. If it was the active key, the staged key or a new one signs at once. Revoking
/// twice has the effect of once.
pub async fn revoke(engine: &Engine, caller: &Caller, key_id: &str) -> Result<SigningKeyRecord, CommandError> {
    caller.require(Permission::KeysWrite)?;
    let mut tx = engine.store().begin().await?;
    let keys: Vec<SigningKeyRecord> = tx.signing_keys().await?.into_iter().map(|stored| stored.key).collect();
    let found = keys.iter().find(|key| key.key_id == key_id).cloned();
    let before = found.ok_or_else(|| CommandError::not_found("signing key", key_id))?;
    if before.state == KeyState::Revoked {
        return Ok(before);
    }
    let (version, now) = (tx.key_set_version().await? + 1, tx.database_now().await?);
    let state = before.state.on(KeyEvent::Revoke)?;
    let key = SigningKeyRecord { state, version, changed_at: now, ..before.clone() };
    tx.update_signing_key(&key).await?;
    announce(&mut tx, &key).await?;
    let data = json!({ "version": version, "was": before.state });
    audit(&mut tx, caller, AuditAction::KeyRevoke, format!("signing-key/{key_id}"), None, data).await?;
    if before.state == KeyState::Active {
        let staged = keys.into_iter().find(|key| key.state == KeyState::Staged);
        let next = match staged {
            Some(staged) => staged,
            None => staged_at_once(engine, caller, &mut tx, (version, now)).await?,
        };
        change(&mut tx, next, KeyEvent::Activate, version, now).await?;
    }
    caller.commit(tx).await?;
    Ok(key)
}

/// Creates a key that is activated without waiting for nodes.
async fn staged_at_once(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (version, now): (u64, Timestamp),
) -> Result<SigningKeyRecord, CommandError> {
    let made = engine.keys().generate_signing_key(KeyState::Staged, version, now, &*engine.ports().entropy);
    let mut made = made.map_err(|error| CommandError::new(Code::Internal, error.to_string()))?;
    made.key.correlation = Some(caller.correlation);
    tx.insert_signing_key(&made).await?;
    Ok(made.key)
}

pub(super) fn join_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        few if few.len() <= NODES_NAMED => few.join(", "),
        many => format!("{} and {} more", many[..NODES_NAMED].join(", "), many.len() - NODES_NAMED),
    }
}
