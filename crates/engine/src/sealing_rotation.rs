//! How one sealing key follows another with every row readable throughout.
//!
//! A next key is *taken* by every replica from its own machine. A command puts it into use with one commit: from there on all that is written is under
//! it (`store` sees to that), and every replica opens and verifies under both. The rows of before are brought over in small changes, by whichever
//! replica comes first to each; how far that is stands in the rows. When none are left the rotation is finished, and each replica gives up the key of
//! before.
//!
//! Deliberately absent: files (`server`).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use gpuaas_model::{AuditAction, CorrelationId, EventKind};
use gpuaas_store::{Change, Reader, ReplicaLife, ReplicaRecord, SealingRecord, StoreError, Tx};
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast::error::RecvError};

use crate::{
    engine::Engine,
    record::{audit_own, platform_event},
};

/// Rows that one change looks at: it holds the writer's turn for some milliseconds.
const BATCH_ROWS: u32 = 100;
/// Lost hints are made up for this often.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// After a failure, most likely of the database, it is looked at again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a process knows of its sealing keys beside the keys.
#[derive(Default)]
pub(crate) struct SealingTending {
    wake: Notify,
    is_key_file_old: AtomicBool,
}

/// Where the sealing keys are in their life, as seen by one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealingState {
    /// The rows are under the present key, and no other is held.
    Settled,
    /// A next key was taken and is not in use.
    NextTaken,
    /// The next key is in use, and rows of before are being brought under it.
    Rotating,
}

impl SealingState {
    /// Its name in the API and in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::NextTaken => "next_taken",
            Self::Rotating => "rotating",
        }
    }
}

impl Engine {
    /// Has this replica say anew which sealing keys it holds, and whether its key file holds one that is in use no more.
    pub fn sealing_keys_changed(&self, is_key_file_old: bool) {
        self.sealing_tending().is_key_file_old.store(is_key_file_old, Ordering::Relaxed);
        self.sealing_tending().wake.notify_one();
    }

    /// Which sealing keys this replica holds, to be told by its record.
    pub(crate) fn told_sealing_keys(&self) -> (Vec<String>, bool) {
        let sealing = self.keys().sealing();
        let held = std::iter::once(sealing.active()).chain(sealing.next()).collect();
        (held, self.sealing_tending().is_key_file_old.load(Ordering::Relaxed))
    }

    /// Carries rotations of the sealing key on until the engine stops.
    pub async fn keep_sealing(&self) {
        let mut changes = self.store().changes();
        loop {
            // Whatever was announced so far is about to be seen.
            while changes.try_recv().is_ok() {}
            let next = self.tend_sealing().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the sealing keys could not be tended");
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
                () = self.sealing_tending().wake.notified() => {}
                () = due => {}
                goes_on = woken => if !goes_on { return },
            }
        }
    }

    /// Uses the key that the rows name, says which keys are held here, and brings the next rows over. Returns when to look again, whatever happens.
    async fn tend_sealing(&self) -> Result<Duration, StoreError> {
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
            tracing::error!(key, "this replica lacks the sealing key in use: give it the key file of the others");
        }
        if let Some(own) = own {
            self.tell_sealing_keys(own).await?;
        }
        if sealing.is_none_or(|sealing| sealing.previous.is_none()) {
            return Ok(SWEEP_EVERY);
        }
        while !self.stopping().is_cancelled() && !self.reseal_some_rows().await? {}
        Ok(SWEEP_EVERY)
    }

    /// Brings the next rows under the key in use. Returns whether the rotation is finished.
    pub async fn reseal_some_rows(&self) -> Result<bool, StoreError> {
        let mut tx = self.store().begin().await?;
        let Some(sealing) = tx.sealing().await?.filter(|sealing| sealing.previous.is_some()) else { return Ok(true) };
        if !self.keys().sealing().holds(&sealing.current) {
            return Err(StoreError::SealingKeyMissing { id: sealing.current });
        }
        let is_done = tx.reseal_rows(BATCH_ROWS).await?;
        if is_done {
            let settled = SealingRecord {
                correlation: sealing.correlation,
                ..SealingRecord::settled(sealing.current, tx.database_now().await?)
            };
            tx.put_sealing(&settled).await?;
            let (id, correlation) = (settled.current, settled.correlation);
            let data = json!({ "previous": sealing.previous });
            tell(&mut tx, &id, SealingState::Settled, correlation, AuditAction::SealingKeyFinish, data).await?;
        }
        tx.commit().await?;
        Ok(is_done)
    }

    /// Writes into this replica's record which keys it holds, if that has changed.
    async fn tell_sealing_keys(&self, own: ReplicaRecord) -> Result<(), StoreError> {
        let (sealing_keys, is_key_file_old) = self.told_sealing_keys();
        if own.sealing_keys == sealing_keys && own.is_key_file_old == is_key_file_old {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        let taken: Vec<String> =
            sealing_keys.iter().skip(1).filter(|id| !own.sealing_keys.contains(id)).cloned().collect();
        tx.update_replica(&ReplicaRecord { sealing_keys, is_key_file_old, ..own }).await?;
        for id in taken {
            let data = json!({ "replica": self.replica() });
            tell(&mut tx, &id, SealingState::NextTaken, None, AuditAction::SealingKeyTake, data).await?;
        }
        tx.commit().await
    }

    /// Whether this replica holds every key under which genuine rows may be: without one it takes them for forged.
    pub async fn holds_sealing_keys(&self) -> Result<bool, StoreError> {
        let sealing = self.store().read().await?.sealing().await?;
        Ok(sealing.is_none_or(|named| self.keys().sealing().holds(&named.current)))
    }
}

/// Tells those who watch, every replica and the audit where a sealing key is now; done by the control plane itself.
async fn tell(
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

/// Tells those who watch, and every replica, of a sealing key.
pub(crate) async fn announce(
    tx: &mut Tx,
    id: &str,
    correlation: Option<CorrelationId>,
    data: Value,
) -> Result<(), StoreError> {
    let kind = EventKind::SealingKeyStateChanged;
    platform_event(tx, kind, "sealing_key", id.to_owned(), correlation, data).await
}

/// The replicas that live.
pub(crate) async fn living(reader: &mut Reader) -> Result<Vec<ReplicaRecord>, StoreError> {
    let lives = reader.replicas().await?.into_iter();
    Ok(lives.filter(|life: &ReplicaLife| !life.left.is_zero()).map(|life| life.replica).collect())
}
