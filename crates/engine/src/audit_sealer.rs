//! Seals audit records soon after they were written.
//!
//! Guarantees: each seal continues the newest one, whichever replica wrote it, because its number is unique and checked in its
//! transaction. No writer of an audit record waits for a seal. A sealer that dies leaves either a whole seal or none.
//!
//! A process seals nothing once a seal that it wrote or read is gone. Records of an archive that cannot be read are awaited for an hour.
//!
//! Numbers of audit records are committed in order and without gaps, because a change holds the counter until it ends. So no record can
//! appear below a number that a seal covers already.

use std::time::Duration;

use futures::future::BoxFuture;
use gpuaas_store::{AuditSealRecord, Reader, StoreError};

use crate::{
    audit_chain::{ChainError, ChainRecords, FIRST_PREVIOUS, SealDigest, Segment, sealed_state},
    engine::Engine,
};

/// The lease under which one replica seals, so that the others do not read the same records.
const LEASE: &str = "audit-sealer";
/// How long the replica that sealed last is the one that seals.
const LEASE_TTL: Duration = Duration::from_secs(10);
/// How long a new record waits for others of the same seal. A busy platform makes one seal in this time.
const BATCH: Duration = Duration::from_secs(3);
/// A seal takes no further page of records after this many, so that a verification can name a defect closely.
const RECORDS_MAX: u64 = 1_000;
/// Pause between two seals of records that had accumulated, so that other writers get the write lock.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval of the checks for records of a replica that died before it sealed them.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Delay after a failure, most likely of the database.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What [`Engine::seal_audit`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// Seals cover every record.
    Complete,
    /// A seal was written, and records are left.
    Partial,
    /// Another replica seals.
    Elsewhere,
}

impl Engine {
    /// Seals audit records until the engine stops.
    pub async fn run_audit_sealer(&self) {
        loop {
            let pause = match self.seal_audit().await {
                Ok(Sealing::Complete) => None,
                Ok(Sealing::Partial) => Some(PAUSE),
                Ok(Sealing::Elsewhere) => Some(LEASE_TTL),
                Err(error @ ChainError::Removed { .. }) => {
                    tracing::error!(%error, "sealing of the audit has stopped");
                    Some(SWEEP_EVERY)
                }
                Err(error) => {
                    tracing::warn!(%error, "audit records could not be sealed; trying again");
                    Some(RETRY_AFTER)
                }
            };
            let next = async {
                match pause {
                    Some(pause) => self.after(pause).await,
                    None => self.await_records().await,
                }
            };
            if self.stopping().run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    }

    /// Waits until a record was written and others had time to follow it.
    async fn await_records(&self) {
        let sweep = self.after(SWEEP_EVERY);
        tokio::select! {
            biased;
            () = sweep => {}
            () = self.store().audit_written() => self.after(BATCH).await,
        }
    }

    fn after(&self, pause: Duration) -> BoxFuture<'static, ()> {
        self.ports().runtime.sleep_until(self.ports().clock.now().plus(pause))
    }

    /// Writes the next seal, if there are records without one.
    pub async fn seal_audit(&self) -> Result<Sealing, ChainError> {
        let (newest, written) = {
            let remembered = self.sealer_memory().newest();
            let mut reader = self.store().read().await?;
            let (newest, written) = sealed_state(&mut reader, remembered).await?;
            if let Some(newest) = &newest {
                self.sealer_memory().remember(newest);
            }
            if newest.as_ref().map_or(0, |seal| seal.last) == written {
                return Ok(Sealing::Complete);
            }
            if self.is_sealed_elsewhere(&mut reader).await? {
                return Ok(Sealing::Elsewhere);
            }
            (newest, written)
        };
        let Some(draft) = self.draft_seal(newest, written).await? else { return Ok(Sealing::Complete) };
        let is_partial = draft.records >= RECORDS_MAX;
        if !self.write_seal(draft).await? {
            return Ok(Sealing::Elsewhere);
        }
        Ok(if is_partial { Sealing::Partial } else { Sealing::Complete })
    }

    async fn is_sealed_elsewhere(&self, reader: &mut Reader) -> Result<bool, StoreError> {
        match reader.lease(LEASE).await? {
            Some(lease) if lease.holder != self.replica() => Ok(lease.expires_at > reader.database_now().await?),
            Some(_) | None => Ok(false),
        }
    }

    /// Returns the seal after `newest`, without time and signature; `None` if there are no records for it. A record above the number
    /// `written` was not written by a control plane: a seal of it would cover the numbers of records to come.
    async fn draft_seal(
        &self,
        newest: Option<AuditSealRecord>,
        written: u64,
    ) -> Result<Option<AuditSealRecord>, ChainError> {
        let (number, after, previous) = match newest {
            Some(newest) => (newest.number, newest.last, newest.digest),
            None => (0, 0, FIRST_PREVIOUS.to_owned()),
        };
        let (mut source, mut digest) =
            (ChainRecords::of(self.store(), self.archive_files()), SealDigest::after(&previous));
        let (mut read, mut last, mut records) = (after, after, 0);
        while read < written && records < RECORDS_MAX {
            match source.next(read, written).await? {
                Segment::Records(page) => {
                    for chained in page {
                        (read, last) = (chained.sequence, chained.sequence);
                        // Left out like a missing record, so that later records get their seal. A verification reports it.
                        let Some(record) = &chained.record else { continue };
                        digest.add(record);
                        records += 1;
                    }
                }
                Segment::Gap(gap) => {
                    self.sealer_memory().check_gap(&gap, self.ports().clock.now())?;
                    read = gap.last;
                }
            }
        }
        Ok((records > 0).then(|| AuditSealRecord {
            number: number + 1,
            first: after + 1,
            last,
            records,
            at: self.ports().clock.now(),
            previous,
            digest: digest.finish(),
            key_id: String::new(),
            signature: String::new(),
        }))
    }

    /// Signs and inserts the seal. Returns `false` if another replica seals.
    async fn write_seal(&self, draft: AuditSealRecord) -> Result<bool, ChainError> {
        let mut tx = self.store().begin().await?;
        if tx.acquire_lease(LEASE, self.replica(), LEASE_TTL).await?.is_none() {
            return Ok(false);
        }
        let ring = self.keys().ring(&mut tx).await?;
        let draft = AuditSealRecord { at: tx.database_now().await?, ..draft };
        let seal = ring.sign_audit_seal(self.keys().control_plane(), draft)?;
        match tx.insert_audit_seal(&seal).await {
            Ok(()) => {}
            Err(StoreError::Stale { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        tx.commit().await?;
        self.sealer_memory().sealed(&seal);
        Ok(true)
    }
}
