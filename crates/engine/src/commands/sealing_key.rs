//! Commands for the sealing key: show, rotate.

use gpuaas_model::{AuditAction, Code, Permission, Timestamp};
use gpuaas_store::{ReplicaRecord, SealingRecord};
use serde_json::json;

use super::{audit, keys::require_same_version};
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    sealing_rotation::{SealingState, announce, live_replicas},
};

/// Instructions for an operator who has no next key yet.
const NEXT_KEY_HINT: &str = "create a key on one replica's machine (gpuaas server next-sealing-key), copy its file to every \
                         other replica's machine, and load it on each (systemctl reload gpuaas-server)";

/// The sealing key in use, and the state of its rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealingKeyView {
    /// The id of the key in use.
    pub id: String,
    /// The state of the sealing keys.
    pub state: SealingState,
    /// The id of the key that this replica has taken and that is not in use yet.
    pub next: Option<String>,
    /// The id of the previous key, while rows under it may remain.
    pub previous: Option<String>,
    /// Since when the key is in use or, once settled, the only one.
    pub since: Option<Timestamp>,
    /// Number of rows still to be resealed under the key in use.
    pub rows_left: u64,
    /// Description of what the next state waits for; `None` if no state follows.
    pub waiting_for: Option<String>,
}

/// Returns the sealing key in use and the state of its rotation.
pub async fn show(engine: &Engine, caller: &Caller) -> Result<SealingKeyView, CommandError> {
    caller.require(Permission::PlatformRead)?;
    let mut reader = engine.store().read().await?;
    let (record, replicas) = (reader.sealing().await?, live_replicas(&mut reader).await?);
    let rows_left = reader.rows_to_reseal().await?;
    Ok(view(engine, record, &replicas, rows_left))
}

/// Activates the next key, which every live replica must hold. The rotation continues automatically; [`show`] and events show its progress.
pub async fn rotate(engine: &Engine, caller: &Caller) -> Result<SealingKeyView, CommandError> {
    caller.require(Permission::KeysWrite)?;
    let mut tx = engine.store().begin().await?;
    require_same_version(engine, &mut tx).await?;
    let before = tx.sealing().await?;
    if let Some(previous) = before.as_ref().and_then(|record| record.previous.as_ref()) {
        let detail = format!("a rotation is under way: rows under the key {previous} are left");
        return Err(CommandError::new(Code::StateConflict, detail)
            .then("wait for it: `gpuaas keys show sealing` shows how many rows are left"));
    }
    let sealing = engine.keys().sealing();
    let Some(next) = sealing.next() else {
        let detail = format!("replica {} has not loaded a next sealing key", engine.replica());
        return Err(CommandError::new(Code::SealingKeyNotOnAllReplicas, detail).then(NEXT_KEY_HINT));
    };
    let replicas = live_replicas(&mut tx).await?;
    let lacking = lacking(&replicas, &next);
    if !lacking.is_empty() {
        let detail = format!("the next sealing key {next} is not held by every replica; these lack it: {lacking}");
        return Err(CommandError::new(Code::SealingKeyNotOnAllReplicas, detail)
            .then("copy its file to the machine of each, and load it there: systemctl reload gpuaas-server"));
    }
    let previous = before.map_or_else(|| sealing.active(), |record| record.current);
    let record = SealingRecord {
        previous: Some(previous),
        correlation: Some(caller.correlation),
        ..SealingRecord::new(next.clone(), tx.database_now().await?)
    };
    tx.put_sealing(&record).await?;
    let data = json!({ "state": SealingState::Rotating.as_str(), "previous": record.previous });
    announce(&mut tx, &next, record.correlation, data).await?;
    let metadata = json!({ "previous": record.previous });
    audit(&mut tx, caller, AuditAction::SealingKeyRotate, format!("sealing-key/{next}"), None, metadata).await?;
    let rows_left = tx.rows_to_reseal().await?;
    tx.commit().await?;
    sealing.activate(&next);
    Ok(view(engine, Some(record), &replicas, rows_left))
}

fn view(engine: &Engine, record: Option<SealingRecord>, replicas: &[ReplicaRecord], rows_left: u64) -> SealingKeyView {
    let sealing = engine.keys().sealing();
    let id = record.as_ref().map_or_else(|| sealing.active(), |record| record.current.clone());
    let previous = record.as_ref().and_then(|record| record.previous.clone());
    let next = sealing.next().filter(|next| *next != id);
    let state = match (&previous, &next) {
        (Some(_), _) => SealingState::Rotating,
        (None, Some(_)) => SealingState::NextTaken,
        (None, None) => SealingState::Settled,
    };
    let waiting_for = match (state, &next) {
        (SealingState::Rotating, _) => Some(format!("rows to be resealed: {rows_left}")),
        (_, Some(next)) => Some(match lacking(replicas, next) {
            lacking if lacking.is_empty() => "the command: gpuaas keys rotate sealing".to_owned(),
            lacking => format!("replicas to load the next key: {lacking}"),
        }),
        (_, None) => old_file_hint(replicas),
    };
    SealingKeyView { id, state, next, previous, since: record.map(|record| record.since), rows_left, waiting_for }
}

/// Names the replicas that do not hold the given key.
fn lacking(replicas: &[ReplicaRecord], key: &str) -> String {
    named(replicas, |replica| !replica.sealing_keys.iter().any(|held| held == key))
}

/// Instructions for an operator if a key file could not be replaced.
fn old_file_hint(replicas: &[ReplicaRecord]) -> Option<String> {
    let old = named(replicas, |replica| replica.is_key_file_old);
    let hint = format!("replace the key file with FILE.next in the same directory on these replicas: {old}");
    (!old.is_empty()).then_some(hint)
}

fn named(replicas: &[ReplicaRecord], which: impl Fn(&ReplicaRecord) -> bool) -> String {
    let named = replicas.iter().filter(|replica| which(replica));
    named.map(|replica| format!("{} ({})", replica.id, replica.api_url)).collect::<Vec<_>>().join(", ")
}
