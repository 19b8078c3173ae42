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

use crate::{engine::Engine, record::audit_own};
use batch::Batch;

/// The lease under which one replica retains history.
const LEASE: &str = "retention";
/// How long the lease lasts without renewal: longer than writing one file takes.
const LEASE_TTL: Duration = Duration::from_secs(60);
/// Pause between two changes, so that other writers get the write lock.
const PAUSE: Duration = Duration::from_millis(20);
/// Shortest and longest interval between two passes.
const PASS_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Delay after a failure, most likely of a disk or the database.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Upper limit of the grain to which archive limits are rounded: a quiet control plane writes one archive of each kind per day.
const GRAIN_MAX: Duration = Duration::from_secs(24 * 3_600);

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A retention time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    /// Kept this long after its end or occurrence.
    Duration(Duration),
    /// Never deleted.
    Forever,
}

impl KeepFor {
    /// The smallest value that can be set. It cannot affect unfinished work, which is never due.
    pub const MIN: Duration = Duration::from_secs(10);

    /// The time before which an entry is due at `now`; `None` if nothing ever is.
    pub fn due_before(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Duration(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Some(Timestamp::from_millis(now.as_millis().saturating_sub(age).max(0)))
            }
            Self::Forever => None,
        }
    }

    /// The same limit for archives, rounded down to a grain of a tenth of the age (1 s to 1 day), so that a repeated pass creates the same
    /// file.
    fn archived_before(self, now: Timestamp) -> Option<Timestamp> {
        let Self::Duration(age) = self else { return None };
        let grain = i64::try_from((age / 10).clamp(PASS_EVERY.0, GRAIN_MAX).as_millis()).unwrap_or(i64::MAX);
        let due = self.due_before(now)?.as_millis();
        Some(Timestamp::from_millis(due - due % grain))
    }
}

/// The retention times of each kind of history in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Operations with their steps and tasks, and tasks outside of operations, after their end. Archived.
    pub operations: KeepFor,
    /// Events. Archived.
    pub events: KeepFor,
    /// Audit records. Archived.
    pub audit: KeepFor,
    /// Stored responses to requests with an idempotency key.
    pub idempotency_keys: KeepFor,
    /// Enrollments, after their use or expiry.
    pub enrollments: KeepFor,
    /// Tokens and access grants, after their expiry or revocation.
    pub ended_credentials: KeepFor,
}

impl Retention {
    /// The default retention times.
    pub const DEFAULT: Self = Self {
        operations: KeepFor::Duration(DAY.saturating_mul(90)),
        events: KeepFor::Duration(DAY.saturating_mul(30)),
        audit: KeepFor::Duration(DAY.saturating_mul(400)),
        idempotency_keys: KeepFor::Duration(DAY),
        enrollments: KeepFor::Duration(DAY.saturating_mul(7)),
        ended_credentials: KeepFor::Duration(DAY.saturating_mul(30)),
    };

    fn of(&self, kind: ArchiveKind) -> KeepFor {
        match kind {
            ArchiveKind::Operations | ArchiveKind::Tasks => self.operations,
            ArchiveKind::Events => self.events,
            ArchiveKind::Audit => self.audit,
        }
    }

    /// The interval between two passes: a tenth of the shortest age, within `PASS_EVERY`.
    fn pass_every(&self) -> Duration {
        let all =
            [self.operations, self.events, self.audit, self.idempotency_keys, self.enrollments, self.ended_credentials];
        let ages = all.iter().filter_map(|keep| match keep {
            KeepFor::Duration(age) => Some(*age / 10),
            KeepFor::Forever => None,
        });
        ages.min().unwrap_or(PASS_EVERY.1).clamp(PASS_EVERY.0, PASS_EVERY.1)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_is_repeated_within_the_grain_has_the_same_limit() {
        let at = |seconds: i64| Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000);
        let keep = Retention::DEFAULT.events;
        assert_eq!(keep.archived_before(at(0)), keep.archived_before(at(3_600)));
        assert!(keep.archived_before(at(0)) < keep.archived_before(at(24 * 3_600)));
        assert!(keep.archived_before(at(0)) <= keep.due_before(at(0)), "no entry is archived early");
        assert_eq!(KeepFor::Forever.archived_before(at(0)), None);
    }

    #[test]
    fn pass_interval_follows_the_shortest_age() {
        assert_eq!(Retention::DEFAULT.pass_every(), Duration::from_secs(3_600));
        let short = Retention { events: KeepFor::Duration(Duration::from_secs(60)), ..Retention::DEFAULT };
        assert_eq!(short.pass_every(), Duration::from_secs(6));
    }
}
