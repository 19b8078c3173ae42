//! Rotates task-signing keys without a task that a node refuses.
//!
//! A new key is *staged*: sent to every node before it signs. It becomes *active* once every connected node has it; a node that connects
//! later gets the set before its first task. The previous key is then in *grace* until the last task that it signed has ended, and is
//! *retired* after that. All of this is in rows: any replica takes the next step, and each sends the set to the nodes whose channels it
//! holds.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, stream};
use gpuaas_model::{AuditAction, EventKind, KeyEvent, KeyState, NodeId, Timestamp};
use gpuaas_store::{Change, Reader, SessionRecord, SigningKeyRecord, StoreError, Tx, with_retries};
use gpuaas_trust::SigningKeySet;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::{
    engine::Engine,
    error::CommandError,
    keys::KeysError,
    record::{audit_own, platform_event},
};

/// How long a staged key waits, by the database's clock, for connected nodes that do not accept it. They are sent the key repeatedly; a
/// node that refuses keys harms only itself.
const STAGED_MAX: Duration = Duration::from_secs(60);
/// Interval of the checks that cover lost hints.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Delay after a failure, most likely of the database.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of nodes that are sent keys concurrently.
const CONCURRENT_DELIVERIES_MAX: usize = 64;

impl Engine {
    /// Advances rotations until the engine stops.
    pub async fn run_key_rotation(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        loop {
            // The read below covers every change announced so far.
            while changes.try_recv().is_ok() {}
            let next = self.maintain_keys().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the task-signing keys could not be maintained");
                // The work that was due before is still due.
                self.key_rotation().is_dirty.store(true, Ordering::Relaxed);
                RETRY_AFTER
            });
            let due = self.ports().runtime.sleep_until(self.ports().clock.now().plus(next));
            let woken = async {
                loop {
                    match changes.recv().await {
                        // A rotation waits for connected nodes.
                        Ok(Change::Keys | Change::Node(_) | Change::Missed) => return true,
                        Ok(Change::Event { .. } | Change::Operation(_) | Change::Token(_) | Change::Sealing) => {}
                        Err(RecvError::Lagged(_)) => return true,
                        Err(RecvError::Closed) => return false,
                    }
                }
            };
            tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                () = self.key_rotation().wake.notified() => {}
                () = due => {}
                goes_on = woken => if !goes_on { return },
            }
        }
    }

    /// Starts sending the set to the nodes here that lack it, and takes the next step of a rotation if it is due. Waits for no node.
    /// Returns the time until the next check.
    async fn maintain_keys(self: &Arc<Self>) -> Result<Duration, KeysError> {
        let (state, now) = (self.key_rotation(), self.ports().clock.now());
        let (ring, set, behind) = {
            let mut reader = self.store().read().await?;
            let ring = self.keys().ring(&mut reader).await?;
            let is_dirty = state.is_dirty.swap(false, Ordering::Relaxed) || state.try_begin_old_set_search(now);
            if !is_dirty && state.settled.load(Ordering::Relaxed) == ring.version() {
                return Ok(SWEEP_EVERY);
            }
            let mut behind = reader.sessions_of(self.replica()).await?;
            behind.retain(|session| session.key_set_version < ring.version() || needs_renewal(session, now));
            (ring, self.keys().signed_set(&mut reader, now).await?, behind)
        };
        let all_delivered = behind.is_empty();
        let (due, again) = state.deliveries.due(behind, self.ports().runtime.elapsed());
        if !due.is_empty() {
            let delivery = self.clone().deliver_keys(set.text, set.version, due);
            self.ports().runtime.spawn("key delivery", Box::pin(delivery));
        }
        let next = self.advance_keys().await?.min(self.advance_authorities().await?);
        state.settled.store(ring.version(), Ordering::Relaxed);
        if !all_delivered || ring.is_changing() {
            // Checked again after `next` at the latest.
            state.is_dirty.store(true, Ordering::Relaxed);
        }
        Ok(next.min(again))
    }

    /// Sends the set over the given connections. Records the nodes that accepted while others have not answered yet.
    async fn deliver_keys(self: Arc<Self>, text: String, version: u64, behind: Vec<SessionRecord>) {
        let text = text.as_str();
        let answers = stream::iter(behind)
            .map(async |session| (self.nodes().send_keys(session.node, text).await, session))
            .buffer_unordered(CONCURRENT_DELIVERIES_MAX)
            .ready_chunks(CONCURRENT_DELIVERIES_MAX);
        let mut answers = std::pin::pin!(answers);
        while let Some(answered) = answers.next().await {
            let taken: Vec<&SessionRecord> =
                answered.iter().filter(|(taken, _)| *taken).map(|(_, session)| session).collect();
            let recorded = self.record_deliveries(&taken, version).await;
            if let Err(error) = &recorded {
                tracing::warn!(%error, "the nodes that accepted the keys could not be recorded");
            }
            let now = self.ports().runtime.elapsed();
            for (taken, session) in &answered {
                self.key_rotation().deliveries.ended(session.connection, *taken && recorded.is_ok(), now);
            }
            self.key_rotation().mark_dirty();
        }
    }

    async fn record_deliveries(&self, taken: &[&SessionRecord], version: u64) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.ports().clock.now();
        with_retries(async || {
            let mut tx = self.store().begin().await?;
            for session in taken {
                tx.set_session_keys(session.node, session.connection, version, now).await?;
            }
            tx.commit().await
        })
        .await
    }

    /// Returns whether the node's agent may lack an accepted key: no session records that it took the present set. `true` if rows cannot be
    /// read.
    pub(crate) async fn may_lack_keys(&self, node: NodeId) -> bool {
        let lacks = async {
            let mut reader = self.store().read().await?;
            let version = reader.key_set_version().await?;
            Ok(reader.session(node).await?.is_none_or(|session| session.key_set_version < version))
        };
        let lacks: Result<bool, StoreError> = lacks.await;
        lacks.unwrap_or(true)
    }

    /// Takes the next step of a rotation if it is due. Returns the time until the next check.
    async fn advance_keys(&self) -> Result<Duration, KeysError> {
        let mut tx = self.store().begin().await?;
        // The replica that staged the key may have another clock, so the database's clock counts.
        let now = tx.database_now().await?;
        let keys: Vec<SigningKeyRecord> = tx.signing_keys().await?.into_iter().map(|stored| stored.key).collect();
        let of = |state| keys.iter().find(|key: &&SigningKeyRecord| key.state == state).cloned();
        let version = tx.key_set_version().await? + 1;
        if let Some(staged) = of(KeyState::Staged) {
            let waited_enough = staged.changed_at.plus(STAGED_MAX);
            if now < waited_enough && !sessions_behind(&mut tx, staged.version).await?.is_empty() {
                return Ok(waited_enough.since(now).min(SWEEP_EVERY));
            }
            // In the opposite order two keys would be active for a moment, which the rows do not allow.
            if let Some(active) = of(KeyState::Active) {
                change(&mut tx, active, KeyEvent::Supersede, version, now).await?;
            }
            change(&mut tx, staged, KeyEvent::Activate, version, now).await?;
            tx.commit().await?;
        } else if let Some(grace) = of(KeyState::Grace) {
            if tx.open_tasks_signed_by(&grace.key_id).await? > 0 {
                return Ok(SWEEP_EVERY);
            }
            change(&mut tx, grace, KeyEvent::Retire, version, now).await?;
            tx.commit().await?;
        }
        Ok(SWEEP_EVERY)
    }
}

/// Returns whether the set that the agent received, when connecting or later, must be sent again with a later expiry.
fn needs_renewal(session: &SessionRecord, now: Timestamp) -> bool {
    session.keys_given_at.unwrap_or(session.since).plus(SigningKeySet::RENEWED_AFTER) <= now
}

/// Connections of nodes that do not have the given version of the set yet.
pub(crate) async fn sessions_behind(reader: &mut Reader, version: u64) -> Result<Vec<SessionRecord>, StoreError> {
    let mut sessions = reader.sessions().await?;
    sessions.retain(|session| session.key_set_version < version);
    Ok(sessions)
}

/// Writes a key's next state, with event and audit record.
pub(crate) async fn change(
    tx: &mut Tx,
    mut key: SigningKeyRecord,
    event: KeyEvent,
    version: u64,
    now: Timestamp,
) -> Result<(), KeysError> {
    key.state = key.state.on(event).map_err(|error| KeysError::Unusable(error.to_string()))?;
    key.version = version;
    key.changed_at = now;
    tx.update_signing_key(&key).await?;
    announce(tx, &key).await?;
    let action = match event {
        KeyEvent::Activate => AuditAction::KeyActivate,
        KeyEvent::Supersede => AuditAction::KeySupersede,
        KeyEvent::Retire => AuditAction::KeyRetire,
        KeyEvent::Revoke => AuditAction::KeyRevoke,
    };
    let target = format!("signing-key/{}", key.key_id);
    audit_own(tx, action, target, key.correlation, json!({ "version": version })).await?;
    Ok(())
}

/// Announces a key's state to subscribers and to every replica.
pub(crate) async fn announce(tx: &mut Tx, key: &SigningKeyRecord) -> Result<(), StoreError> {
    let data = json!({ "state": key.state, "version": key.version });
    let kind = EventKind::SigningKeyStateChanged;
    platform_event(tx, kind, "signing_key", key.key_id.clone(), key.correlation, data).await
}

impl From<KeysError> for CommandError {
    fn from(error: KeysError) -> Self {
        match error {
            KeysError::Store(error) => error.into(),
            other => Self::new(gpuaas_model::Code::Internal, other.to_string()),
        }
    }
}
