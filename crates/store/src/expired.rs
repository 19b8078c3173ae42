//! Deletes archived history and records that ended long ago.
//!
//! Each deletion is a bounded transaction, so it delays other changes by a few milliseconds at most. Each selects its
//! rows again, so an interrupted deletion continues where it stopped.

use gpuaas_model::Timestamp;

use crate::{
    error::StoreError,
    query::{Value, get_count, get_text, int, text},
    store::{Reader, Store, Tx},
};

/// Most rows that one transaction deletes.
const ROWS_MAX: u64 = 200;

/// A class of rows to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Archived operations, with their steps, tasks and leases.
    ArchivedOperations,
    /// Archived tasks without an operation.
    ArchivedTasks,
    /// Archived events and audit records.
    ArchivedEntries,
    /// Idempotency keys whose answer was stored before this time.
    IdempotencyKeys(Timestamp),
    /// Enrollments that were redeemed or expired before this time.
    Enrollments(Timestamp),
    /// Access grants that expired or were revoked before this time.
    AccessGrants(Timestamp),
    /// Tokens that expired or were revoked before this time.
    Tokens(Timestamp),
    /// Expired leases of replicas and of requests with an idempotency key, whose holder ended without releasing them.
    Leases,
}

impl Store {
    /// Deletes up to one transaction's worth of these rows. Returns false, without a change, if there were none.
    pub async fn delete_expired(&self, what: Expired) -> Result<bool, StoreError> {
        // Checks on a reader first, so that an empty deletion never takes the write lock.
        if !self.read().await?.has_expired(what).await? {
            return Ok(false);
        }
        let mut tx = self.begin().await?;
        tx.delete_expired(what).await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl Reader {
    async fn has_expired(&mut self, what: Expired) -> Result<bool, StoreError> {
        let ended = |sql, before: Timestamp| (sql, vec![Value::Int(before.as_millis())]);
        let (sql, values) = match what {
            Expired::ArchivedEntries => return Ok(self.next_range_to_delete().await?.is_some()),
            Expired::ArchivedOperations => ("select id from operations where archive_id <> '' limit 1", Vec::new()),
            Expired::ArchivedTasks => {
                ("select id from tasks where archive_id <> '' and operation_id = '' limit 1", Vec::new())
            }
            Expired::IdempotencyKeys(before) => {
                ended("select key from idempotency where created_at < $1 limit 1", before)
            }
            Expired::Enrollments(before) => {
                ended("select id from enrollments where ends_at > 0 and ends_at < $1 limit 1", before)
            }
            Expired::AccessGrants(before) => {
                ended("select id from access_grants where ends_at > 0 and ends_at < $1 limit 1", before)
            }
            Expired::Tokens(before) => {
                ended("select id from tokens where ends_at > 0 and ends_at < $1 limit 1", before)
            }
            Expired::Leases => {
                let now = self.database_now().await?;
                let sql = "select name from leases where (name like 'idempotency/%' or name like 'replica/%') \
                           and expires_at <= $1 limit 1";
                ended(sql, now)
            }
        };
        Ok(self.row(sql, values).await?.is_some())
    }
}

impl Tx {
    async fn delete_expired(&mut self, what: Expired) -> Result<(), StoreError> {
        let some = |sql, before: Timestamp| (sql, vec![Value::Int(before.as_millis()), int(ROWS_MAX)]);
        let (sql, values) = match what {
            Expired::ArchivedOperations => return self.delete_archived_operation().await,
            Expired::ArchivedEntries => return self.delete_archived_entries().await,
            Expired::ArchivedTasks => {
                let sql = "delete from tasks where id in \
                           (select id from tasks where archive_id <> '' and operation_id = '' limit $1)";
                (sql, vec![int(ROWS_MAX)])
            }
            Expired::IdempotencyKeys(before) => {
                let sql = "delete from idempotency where (token_id, key) in \
                           (select token_id, key from idempotency where created_at < $1 order by created_at limit $2)";
                some(sql, before)
            }
            Expired::Enrollments(before) => {
                let sql = "delete from enrollments where id in \
                           (select id from enrollments where ends_at > 0 and ends_at < $1 order by ends_at limit $2)";
                some(sql, before)
            }
            Expired::AccessGrants(before) => {
                let sql = "delete from access_grants where id in \
                           (select id from access_grants where ends_at > 0 and ends_at < $1 order by ends_at limit $2)";
                some(sql, before)
            }
            Expired::Tokens(before) => {
                let sql = "delete from tokens where id in \
                           (select id from tokens where ends_at > 0 and ends_at < $1 order by ends_at limit $2)";
                some(sql, before)
            }
            Expired::Leases => {
                let sql = "delete from leases where (name like 'idempotency/%' or name like 'replica/%') \
                           and expires_at <= $1";
                (sql, vec![Value::Int(self.database_now().await?.as_millis())])
            }
        };
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Deletes one archived operation, which has about fifty rows.
    async fn delete_archived_operation(&mut self) -> Result<(), StoreError> {
        let Some(row) = self.row("select id from operations where archive_id <> '' limit 1", Vec::new()).await? else {
            return Ok(());
        };
        let id = get_text(&row, "id")?;
        for sql in ["delete from steps where operation_id = $1", "delete from tasks where operation_id = $1"] {
            self.execute(sql, vec![text(&id)]).await?;
        }
        let lease = Value::Text(format!("operation/{id}"));
        self.execute("delete from leases where name = $1", vec![lease]).await?;
        self.execute("delete from operations where id = $1", vec![text(&id)]).await?;
        Ok(())
    }

    /// Deletes the next rows of an archived range, or marks the range as deleted if no row remains.
    async fn delete_archived_entries(&mut self) -> Result<(), StoreError> {
        let Some(range) = self.next_range_to_delete().await? else { return Ok(()) };
        let is_audit = range.stream == crate::record::ArchivedRange::AUDIT;
        let (stream, last) = (text(&range.stream), int(range.last));
        let left = match is_audit {
            true => {
                let sql =
                    "select sequence from audit where sequence >= $1 and sequence <= $2 order by sequence limit 1";
                self.row(sql, vec![int(range.first), last]).await?
            }
            false => {
                let sql = "select sequence from events where stream = $1 and sequence >= $2 and sequence <= $3 \
                           order by sequence limit 1";
                self.row(sql, vec![stream.clone(), int(range.first), last]).await?
            }
        };
        let Some(from) = left.map(|row| get_count(&row, "sequence")).transpose()? else {
            let sql = "update archive_ranges set is_deleted = 1 where stream = $1 and first_sequence = $2";
            self.execute(sql, vec![stream, int(range.first)]).await?;
            return Ok(());
        };
        let (from, until) = (int(from), int(range.last.min(from + ROWS_MAX - 1)));
        match is_audit {
            true => {
                self.execute("delete from audit where sequence >= $1 and sequence <= $2", vec![from, until]).await?
            }
            false => {
                let sql = "delete from events where stream = $1 and sequence >= $2 and sequence <= $3";
                self.execute(sql, vec![stream, from, until]).await?
            }
        };
        Ok(())
    }
}
