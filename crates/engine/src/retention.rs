//! Retains history for the configured time: archives it, and deletes it from the database.
//!
//! Guarantees: an operation, task, event or audit record is deleted only after a file that contains it is durable in the artifact store and
//! a row names that file. Never due: the newest operation of an existing workload, unfinished operations and tasks, the newest event of
//! each stream, and the newest audit record. A process that dies in between resumes: a file without its row is written again under the same
//! digest, and the next pass deletes rows that an archive contains.
//!
//! One replica does this at a time, under a lease. Each change is bounded and followed by a pause.

mod batch;

use std::{sync::Arc, time::Duration};

use gpuaas_crash_points::{Point, reach};
use gpuaas_model::{ArchiveId, ArchiveKind, AuditAction, Timestamp};
use gpuaas_store::{ArchiveRecord, Expired, StoreError};
use serde_json::json;

use crate::retention_times::Retention;
use crate::{engine::Engine, record::audit_own};
use batch::Batch;

/// The lease under which one replica retains history.
const LEASE: &str = "retention";
/// How long the lease lasts without renewal: longer than writing one file takes.
const LEASE_TTL: Duration = Duration::from_secs(60);
/// Pause between two changes, so that other writers get the write lock.
const PAUSE: Duration = Duration::from_millis(20);
/// Delay after a failure, most likely of a disk or the database.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The reasons for which a pass ends early.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An archive file could not be written.
    #[error("an archive could not be written: {0}")]
    File(String),
    /// A record could not be converted to JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Engine {
    /// Archives and deletes history until the engine stops.
    pub async fn run_retention(self: &Arc<Self>) {
        let every = self.retention().pass_every();
        let mut next = every.min(RETRY_AFTER);
        loop {
            let due = self.ports().runtime.sleep_until(self.ports().clock.now().plus(next));
            let pass = async {
                due.await;
                self.retain().await
            };
            next = match self.stopping().run_until_cancelled(pass).await {
                None => return,
                Some(Ok(())) => every,
                Some(Err(error)) => {
                    tracing::warn!(%error, "history could not be archived and deleted; trying again");
                    every.min(RETRY_AFTER)
                }
            };
        }
    }

    /// Archives and deletes everything that is due. Does nothing while another replica does it.
    pub async fn retain(&self) -> Result<(), RetentionError> {
        if !self.acquire_retention_lease().await? {
            return Ok(());
        }
        let now = self.ports().clock.now();
        for kind in ArchiveKind::ALL {
            // Deletes what an earlier pass archived.
            self.delete_all(archived(*kind)).await?;
            let Some(before) = self.retention().of(*kind).archived_before(now) else { continue };
            while let Some(batch) = self.next_batch(*kind, before).await? {
                if !self.acquire_retention_lease().await? {
                    return Ok(());
                }
                self.archive(batch).await?;
                self.delete_all(archived(*kind)).await?;
            }
        }
        let Retention { idempotency_keys, enrollments, ended_credentials, .. } = *self.retention();
        let ended = [
            idempotency_keys.due_before(now).map(Expired::IdempotencyKeys),
            enrollments.due_before(now).map(Expired::Enrollments),
            ended_credentials.due_before(now).map(Expired::AccessGrants),
            ended_credentials.due_before(now).map(Expired::Tokens),
        ];
        for what in ended.into_iter().flatten() {
            self.delete_all(what).await?;
        }
        self.store().delete_expired(Expired::Leases).await?;
        self.store().delete_lease(LEASE, self.replica()).await?;
        Ok(())
    }

    async fn acquire_retention_lease(&self) -> Result<bool, StoreError> {
        Ok(self.store().acquire_lease(LEASE, self.replica(), LEASE_TTL).await?.is_some())
    }

    /// Reads the next due batch; releases the reader before anything is written.
    async fn next_batch(&self, kind: ArchiveKind, before: Timestamp) -> Result<Option<Batch>, RetentionError> {
        let mut reader = self.store().read().await?;
        Batch::next(&mut reader, kind, before).await
    }

    /// Writes a batch to the artifact store, then the row that names its file.
    async fn archive(&self, batch: Batch) -> Result<(), RetentionError> {
        let Batch { kind, lines, entries, from, until, ranges, operations, tasks } = batch;
        let file = self.archive_files().store(lines).await.map_err(RetentionError::File)?;
        reach(Point::ArchiveWritten);
        let (clock, entropy) = (&*self.ports().clock, &*self.ports().entropy);
        let archive = ArchiveRecord {
            id: ArchiveId::generate(clock, entropy),
            kind,
            from,
            until,
            entries,
            ranges,
            sha256: file.sha256,
            size_bytes: file.size_bytes,
            created_at: clock.now(),
        };
        let mut tx = self.store().begin().await?;
        tx.insert_archive(&archive, &operations, &tasks).await?;
        let about = json!({
            "kind": archive.kind, "entries": archive.entries, "sha256": archive.sha256,
            "from": archive.from.to_string(), "until": archive.until.to_string(),
        });
        audit_own(&mut tx, AuditAction::ArchiveCreate, format!("archive/{}", archive.id), None, about).await?;
        tx.commit().await?;
        reach(Point::ArchiveRecorded);
        tracing::info!(archive = %archive.id, %kind, entries, "history was archived");
        Ok(())
    }

    async fn delete_all(&self, what: Expired) -> Result<(), StoreError> {
        while self.store().delete_expired(what).await? {
            self.ports().runtime.sleep_until(self.ports().clock.now().plus(PAUSE)).await;
        }
        Ok(())
    }
}

/// The rows that can be deleted once archives of the given kind contain them.
const fn archived(kind: ArchiveKind) -> Expired {
    match kind {
        ArchiveKind::Operations => Expired::ArchivedOperations,
        ArchiveKind::Tasks => Expired::ArchivedTasks,
        ArchiveKind::Events | ArchiveKind::Audit => Expired::ArchivedEntries,
    }
}
