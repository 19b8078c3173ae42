//! How one task-signing key follows another without a task that any node refuses.
//!
//! A new key is *staged*: given to every node before it signs. It becomes *active* once every connected node has it (one that connects later is
//! given the set before its first task), and the one before is in *grace* until the last task that it signed has ended. Then it is *retired*.
//! Rows hold all of it: any replica takes the next step, and each gives the set to the nodes whose channels it holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use gpuaas_model::{AuditAction, EventKind, KeyEvent, KeyState, NodeId, Timestamp};
use gpuaas_store::{Change, Reader, SessionRecord, SigningKeyRecord, StoreError, Tx, repeated};
use gpuaas_trust::SigningKeySet;
use serde_json::json;
use tokio::sync::{Notify, broadcast::error::RecvError};

use crate::{
    engine::Engine,
    error::CommandError,
    key_giving::Givings,
    keys::KeysError,
    record::{audit_own, platform_event},
};

/// A staged key waits this long, by the database's clock, for nodes that are connected and do not take it. They are given it again and again; a
/// node that refuses keys harms itself alone.
const STAGED_MAX: Duration = Duration::from_secs(60);
/// Lost hints are made up for this often.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Connections that stand for long are looked through this often for sets that were given long ago.
const OLD_SETS_EVERY: Duration = Duration::from_secs(3_600);
/// After a failure, most likely of the database, it is looked at again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Nodes that are given keys at the same time.
const GIVEN_AT_ONCE: usize = 64;

/// What a process knows of the keys it tends.
#[derive(Default)]
pub(crate) struct KeyTending {
    wake: Notify,
    /// A node lacks keys, or the last task of one may have ended.
    doubted: AtomicBool,
    /// The version of the set after which nothing was left to do.
    settled: AtomicU64,
    givings: Givings,
    /// When connections that stand for long were last looked through for sets that end, in milliseconds.
    looked_for_old_sets: AtomicI64,
    /// When all nodes were last looked through for an authority's rotation, in milliseconds; 0 where none was under way.
    looked_through_nodes: AtomicI64,
}

impl KeyTending {
    /// Has the keys looked at again.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Whether all nodes may be looked through now; if not, when to come again. If so, they count as looked through.
    pub(crate) fn may_look_through_nodes(&self, now: Timestamp, every: Duration) -> (bool, Duration) {
        let last = Timestamp::from_millis(self.looked_through_nodes.load(Ordering::Relaxed));
        let next = last.plus(every);
        // A clock that was set back holds nothing up.
        let is_wanted = next <= now || last > now;
        if is_wanted {
            self.looked_through_nodes.store(now.as_millis(), Ordering::Relaxed);
        }
        (is_wanted, next.since(now))
    }

    /// There was no rotation: the next one is looked at without delay.
    pub(crate) fn nothing_to_look_through(&self) {
        self.looked_through_nodes.store(0, Ordering::Relaxed);
    }

    /// Whether it is time to look through connections that stand for long.
    fn must_look_for_old_sets(&self, now: Timestamp) -> bool {
        let last = Timestamp::from_millis(self.looked_for_old_sets.load(Ordering::Relaxed));
        let is_time = last.plus(OLD_SETS_EVERY) <= now;
        if is_time {
            self.looked_for_old_sets.store(now.as_millis(), Ordering::Relaxed);
        }
        is_time
    }
}

impl Engine {
    /// Carries rotations on until the engine stops.
    pub async fn keep_keys(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        loop {
            // Whatever was announced so far is about to be seen.
            while changes.try_recv().is_ok() {}
            let next = self.tend_keys().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the task-signing keys could not be tended");
                // What was doubted before is doubted still.
                self.key_tending().doubted.store(true, Ordering::Relaxed);
                RETRY_AFTER
            });
            let due = self.ports().runtime.sleep_until(self.ports().clock.now().plus(next));
            let woken = async {
                loop {
                    match changes.recv().await {
                        // A rotation waits for the nodes that are connected.
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
                () = self.key_tending().wake.notified() => {}
                () = due => {}
                goes_on = woken => if !goes_on { return },
            }
        }
    }

    /// Has the set given to the nodes here that lack it, and takes the next step if it is due. Waits for no node. Returns when to look again,
    /// whatever happens.
    async fn tend_keys(self: &Arc<Self>) -> Result<Duration, KeysError> {
        let (tending, now) = (self.key_tending(), self.ports().clock.now());
        let (ring, set, behind) = {
            let mut reader = self.store().read().await?;
            let ring = self.keys().ring(&mut reader).await?;
            let doubted = tending.doubted.swap(false, Ordering::Relaxed) || tending.must_look_for_old_sets(now);
            if !doubted && tending.settled.load(Ordering::Relaxed) == ring.version() {
                return Ok(SWEEP_EVERY);
            }
            let mut behind = reader.sessions_of(self.replica()).await?;
            behind.retain(|session| session.key_set_version < ring.version() || is_to_be_renewed(session, now));
            (ring, self.keys().signed_set(&mut reader, now).await?, behind)
        };
        let all_given = behind.is_empty();
        let (due, again) = tending.givings.due(behind, self.ports().runtime.elapsed());
        if !due.is_empty() {
            let giving = self.clone().give(set.text, set.version, due);
            self.ports().runtime.spawn("giving of keys", Box::pin(giving));
        }
        let next = self.advance_keys().await?.min(self.advance_authorities().await?);
        tending.settled.store(ring.version(), Ordering::Relaxed);
        if !all_given || ring.is_changing() {
            // Looked at again at the latest after `next`.
            tending.doubted.store(true, Ordering::Relaxed);
        }
        Ok(next.min(again))
    }

    /// Gives the set over those connections. What some took is recorded while others still think about it.
    async fn give(self: Arc<Self>, text: String, version: u64, behind: Vec<SessionRecord>) {
        let text = text.as_str();
        let answers = stream::iter(behind)
            .map(async |session| (self.nodes().give_keys(session.node, text).await, session))
            .buffer_unordered(GIVEN_AT_ONCE)
            .ready_chunks(GIVEN_AT_ONCE);
        let mut answers = std::pin::pin!(answers);
        while let Some(answered) = answers.next().await {
            let taken: Vec<&SessionRecord> =
                answered.iter().filter(|(taken, _)| *taken).map(|(_, session)| session).collect();
            let recorded = self.record_taken(&taken, version).await;
            if let Err(error) = &recorded {
                tracing::warn!(%error, "it could not be recorded which nodes have the keys");
            }
            let now = self.ports().runtime.elapsed();
            for (taken, session) in &answered {
                self.key_tending().givings.ended(session.connection, *taken && recorded.is_ok(), now);
            }
            self.key_tending().doubt();
        }
    }

    async fn record_taken(&self, taken: &[&SessionRecord], version: u64) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.ports().clock.now();
        repeated(async || {
            let mut tx = self.store().begin().await?;
            for session in taken {
                tx.set_session_keys(session.node, session.connection, version, now).await?;
            }
            tx.commit().await
        })
        .await
    }

    /// Whether the agent of a node may not know a key that signs now: it is not recorded that it took the set.
    pub(crate) async fn may_lack_keys(&self, node: NodeId) -> bool {
        let lacks = async {
            let mut reader = self.store().read().await?;
            let version = reader.key_set_version().await?;
            Ok(reader.session(node).await?.is_none_or(|session| session.key_set_version < version))
        };
        let lacks: Result<bool, StoreError> = lacks.await;
        lacks.unwrap_or(true)
    }

    /// Takes the next step of a rotation if it is due. Returns when to look again, whatever happens.
    async fn advance_keys(&self) -> Result<Duration, KeysError> {
        let mut tx = self.store().begin().await?;
        // Whoever staged the key may have another clock.
        let now = tx.database_now().await?;
        let keys: Vec<SigningKeyRecord> = tx.signing_keys().await?.into_iter().map(|stored| stored.key).collect();
        let of = |state| keys.iter().find(|key: &&SigningKeyRecord| key.state == state).cloned();
        let version = tx.key_set_version().await? + 1;
        if let Some(staged) = of(KeyState::Staged) {
            let waited_enough = staged.changed_at.plus(STAGED_MAX);
            if now < waited_enough && !behind(&mut tx, staged.version).await?.is_empty() {
                return Ok(waited_enough.since(now).min(SWEEP_EVERY));
            }
            // The other way round two would be active for a moment, which the rows do not allow.
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

/// Whether the set that the agent got, with its connection or over it, is to be given again with a later end.
fn is_to_be_renewed(session: &SessionRecord, now: Timestamp) -> bool {
    session.keys_given_at.unwrap_or(session.since).plus(SigningKeySet::RENEWED_AFTER) <= now
}

/// Connections of nodes that do not hold that version of the set yet.
pub(crate) async fn behind(reader: &mut Reader, version: u64) -> Result<Vec<SessionRecord>, StoreError> {
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

/// Tells those who watch, and every replica, what a key is now.
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
