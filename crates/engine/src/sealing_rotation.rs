//! Rotates the sealing key while every row stays readable.
//!
//! Each replica *takes* the next key from its own machine. A command activates it with one commit: from then on `store` writes everything
//! under it, and every replica opens and verifies under both keys. Replicas reseal the older rows in small batches; the progress is in the
//! rows. When none are left the rotation is finished, and each replica drops the previous key.
//!
//! Deliberately absent: files (`server`).

use std::{sync::atomic::Ordering, time::Duration};

use gpuaas_model::{AuditAction, CorrelationId, EventKind};
use gpuaas_store::{Change, Reader, ReplicaLiveness, ReplicaRecord, SealingRecord, StoreError, Tx};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    engine::Engine,
    record::{audit_own, platform_event},
};

/// Rows per batch: it holds the write lock for some milliseconds.
const BATCH_ROWS: u32 = 100;
/// Interval of the checks that cover lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Delay after a failure, most likely of the database.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The state of the sealing keys, as seen by one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealingState {
    /// All rows are under the active key, and the replica holds no other.
    Settled,
    /// The replica took a next key that is not in use yet.
    NextTaken,
    /// The next key is in use, and older rows are being resealed under it.
    Rotating,
}

impl SealingState {
    /// The state's name in the API and in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::NextTaken => "next_taken",
            Self::Rotating => "rotating",
        }
    }
}

impl Engine {
    /// Requests a new report of the sealing keys that this replica holds, and of whether its key file holds one that is no longer in use.
    pub fn sealing_keys_changed(&self, is_key_file_old: bool) {
        self.sealing_rotation().is_key_file_old.store(is_key_file_old, Ordering::Relaxed);
        self.sealing_rotation().wake.notify_one();
    }

    /// The ids of the sealing keys for this replica's record, and whether its key file is outdated.
    pub(crate) fn reported_sealing_keys(&self) -> (Vec<String>, bool) {
        let sealing = self.keys().sealing();
        let held = std::iter::once(sealing.active()).chain(sealing.next()).collect();
        (held, self.sealing_rotation().is_key_file_old.load(Ordering::Relaxed))
    }

    /// Advances rotations of the sealing key until the engine stops.
    pub async fn run_sealing_rotation(&self) {
        let mut changes = self.store().changes();
        loop {
            // The read below covers every change announced so far.
            while changes.try_recv().is_ok() {}
            let next = self.maintain_sealing_keys().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the sealing keys could not be maintained");
                RETRY_AFTER
            });
            let due = self.ports().runtime.sleep_until(self.ports().clock.now().plus(next));
            let woken = async {
                loop {
                    match changes.recv().await {
                        Ok(Change::Sealing | Change::Missed) => return true,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => return true,
                        Err(RecvError::Closed) => return false,
                    }
                }
            };
            tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                () = self.sealing_rotation().wake.notified() => {}
                () = due => {}
                goes_on = woken => if !goes_on { return },
            }
        }
    }

    /// Activates the key that the rows name, reports the keys held here, and reseals the remaining rows. Returns the time until the next
    /// check.
    async fn maintain_sealing_keys(&self) -> Result<Duration, StoreError> {
        let (sealing, own) = {
            let mut reader = self.store().read().await?;
            let lives = reader.replicas().await?;
            let own = lives.into_iter().find(|life| life.replica.id == self.replica()).map(|life| life.replica);
            (reader.sealing().await?, own)
        };
        if let Some(sealing) = &sealing
            && !self.keys().sealing().activate(&sealing.current)
        {
            let key = &sealing.current;
            tracing::error!(key, "this replica lacks the sealing key in use: copy the key file of another replica");
        }
        if let Some(own) = own {
            self.report_sealing_keys(own).await?;
        }
        if sealing.is_none_or(|sealing| sealing.previous.is_none()) {
            return Ok(SWEEP_EVERY);
        }
        while !self.stopping().is_cancelled() && !self.reseal_some_rows().await? {}
        Ok(SWEEP_EVERY)
    }

    /// Reseals the next batch of rows under the active key. Returns `true` once the rotation is finished.
    pub async fn reseal_some_rows(&self) -> Result<bool, StoreError> {
        // A replica that lacks the previous key would pass over its rows, and its end of the rotation would make every replica drop the key.
        // Checked before the transaction too, because such a replica tries again every second.
        self.keys().check_sealing_keys(&mut self.store().read().await?).await?;
        let mut tx = self.store().begin().await?;
        let Some(sealing) = tx.sealing().await?.filter(|sealing| sealing.previous.is_some()) else { return Ok(true) };
        self.keys().check_sealing_keys(&mut tx).await?;
        let is_done = tx.reseal_rows(BATCH_ROWS).await?;
        if is_done {
            let settled = SealingRecord {
                correlation: sealing.correlation,
                ..SealingRecord::new(sealing.current, tx.database_now().await?)
            };
            tx.put_sealing(&settled).await?;
            let (id, correlation) = (settled.current, settled.correlation);
            let data = json!({ "previous": sealing.previous });
            record_state(&mut tx, &id, SealingState::Settled, correlation, AuditAction::SealingKeyFinish, data).await?;
        }
        tx.commit().await?;
        Ok(is_done)
    }

    /// Updates the held keys in this replica's record, if they changed.
    async fn report_sealing_keys(&self, own: ReplicaRecord) -> Result<(), StoreError> {
        let (sealing_keys, is_key_file_old) = self.reported_sealing_keys();
        if own.sealing_keys == sealing_keys && own.is_key_file_old == is_key_file_old {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        let taken: Vec<String> =
            sealing_keys.iter().skip(1).filter(|id| !own.sealing_keys.contains(id)).cloned().collect();
        tx.update_replica(&ReplicaRecord { sealing_keys, is_key_file_old, ..own }).await?;
        for id in taken {
            let data = json!({ "replica": self.replica() });
            record_state(&mut tx, &id, SealingState::NextTaken, None, AuditAction::SealingKeyTake, data).await?;
        }
        tx.commit().await
    }

    /// Returns whether this replica holds every sealing key that rows may be under. Without one, genuine rows look forged.
    pub async fn holds_sealing_keys(&self) -> Result<bool, StoreError> {
        let sealing = self.store().read().await?.sealing().await?;
        Ok(sealing.is_none_or(|named| named.ids().all(|id| self.keys().sealing().holds(id))))
    }
}

/// Announces a sealing key's state to subscribers and every replica, and writes an audit record of the control plane.
async fn record_state(
    tx: &mut Tx,
    id: &str,
    state: SealingState,
    correlation: Option<CorrelationId>,
    action: AuditAction,
    mut data: Value,
) -> Result<(), StoreError> {
    audit_own(tx, action, format!("sealing-key/{id}"), correlation, data.clone()).await?;
    data["state"] = state.as_str().into();
    announce(tx, id, correlation, data).await
}

/// Announces a change of a sealing key to subscribers and to every replica.
pub(crate) async fn announce(
    tx: &mut Tx,
    id: &str,
    correlation: Option<CorrelationId>,
    data: Value,
) -> Result<(), StoreError> {
    let kind = EventKind::SealingKeyStateChanged;
    platform_event(tx, kind, "sealing_key", id.to_owned(), correlation, data).await
}

/// The live replicas.
pub(crate) async fn live_replicas(reader: &mut Reader) -> Result<Vec<ReplicaRecord>, StoreError> {
    let lives = reader.replicas().await?.into_iter();
    Ok(lives.filter(|life: &ReplicaLiveness| !life.time_left.is_zero()).map(|life| life.replica).collect())
}
