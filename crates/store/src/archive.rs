//! Archives of history, and the selection of history that is due.
//!
//! Guarantees: the row of an archive lists everything in its file, from the transaction that inserts it, and no entry
//! is in two archives. Triggers of the database refuse to delete an event or audit record that no archive holds. The
//! newest event of a stream and the newest audit record are never due.

use gpuaas_model::{ArchiveId, ArchiveKind, OperationId, StreamName, TaskId, Timestamp};

use crate::{
    error::StoreError,
    page::Page,
    query::{Row, Value, document, get_count, get_parsed, int, text},
    record::{ArchiveRecord, ArchivedRange, AuditRecord, EventRecord, OperationRecord, TaskRecord},
    select::Select,
    store::{Reader, Tx},
};

impl Tx {
    /// Inserts an archive whose file is durable, with its ranges and the ids of its operations and tasks. Fails with
    /// [`StoreError::Stale`] if one of them is already in an archive.
    pub async fn insert_archive(
        &mut self,
        archive: &ArchiveRecord,
        operations: &[OperationId],
        tasks: &[TaskId],
    ) -> Result<(), StoreError> {
        let values = vec![text(archive.id), text(archive.kind), text(&archive.sha256), document(archive)?];
        self.execute("insert into archives (id, kind, sha256, doc) values ($1, $2, $3, $4)", values).await?;
        for range in &archive.ranges {
            if self.archived_until(&range.stream).await? >= range.first {
                return Err(StoreError::Stale { what: "archive" });
            }
            let values = vec![text(&range.stream), int(range.first), int(range.last), text(archive.id)];
            let sql = "insert into archive_ranges (stream, first_sequence, last_sequence, archive_id) values ($1, $2, $3, $4)";
            self.execute(sql, values).await?;
        }
        for operation in operations {
            let sql = "update operations set archive_id = $2 where id = $1 and is_open = 0 and archive_id = ''";
            self.mark_archived(sql, text(operation), archive.id).await?;
        }
        for task in tasks {
            let sql = "update tasks set archive_id = $2 where id = $1 and is_open = 0 and archive_id = ''";
            self.mark_archived(sql, text(task), archive.id).await?;
        }
        Ok(())
    }

    async fn mark_archived(&mut self, sql: &'static str, row: Value, archive: ArchiveId) -> Result<(), StoreError> {
        match self.execute(sql, vec![row, text(archive)]).await? {
            1 => Ok(()),
            _ => Err(StoreError::Stale { what: "archive" }),
        }
    }
}

impl Reader {
    /// Returns the archive with this id.
    pub async fn archive(&mut self, id: ArchiveId) -> Result<ArchiveRecord, StoreError> {
        let found = self.find("select id, doc from archives where id = $1", vec![text(id)]).await?;
        found.ok_or_else(|| StoreError::not_found("archive", id))
    }

    /// Returns archives of one kind, or of all kinds, oldest first.
    pub async fn archives(&mut self, kind: Option<ArchiveKind>, page: &Page) -> Result<Vec<ArchiveRecord>, StoreError> {
        self.records(Select::all("id, doc from archives").equal("kind", kind).page(page)).await
    }

    /// Returns the digests of the files of all archives.
    pub async fn archive_digests(&mut self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows("select sha256 from archives order by id", Vec::new()).await?;
        rows.iter().map(|row| Ok(row.text("sha256")?.to_owned())).collect()
    }

    /// Returns operations that ended before `before` and are in no archive, in the order in which they ended. Leaves
    /// out the newest operation of a workload that is not decommissioned, and operations with an open task.
    pub async fn operations_to_archive(
        &mut self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<OperationRecord>, StoreError> {
        let sql = "select id, doc from operations where ended_at > 0 and ended_at < $1 and archive_id = '' and is_open = 0 \
                   and (exists (select 1 from workloads w where w.id = workload_id and w.lifecycle = 'decommissioned') \
                   or exists (select 1 from operations n where n.workload_id = operations.workload_id and n.id > operations.id)) \
                   and not exists (select 1 from tasks t where t.operation_id = operations.id and t.is_open = 1) \
                   order by ended_at limit $2";
        self.list(sql, vec![Value::Int(before.as_millis()), Value::Int(i64::from(limit))]).await
    }

    /// Returns all tasks of an operation, oldest first.
    pub async fn tasks_of(&mut self, operation: OperationId) -> Result<Vec<TaskRecord>, StoreError> {
        self.list("select id, doc from tasks where operation_id = $1 order by id", vec![text(operation)]).await
    }

    /// Returns tasks without an operation that ended before `before` and are in no archive, oldest first.
    pub async fn tasks_to_archive(&mut self, before: Timestamp, limit: u32) -> Result<Vec<TaskRecord>, StoreError> {
        let sql = "select id, doc from tasks where operation_id = '' and archive_id = '' and is_open = 0 order by id limit $1";
        let mut tasks: Vec<TaskRecord> = self.list(sql, vec![Value::Int(i64::from(limit))]).await?;
        let young = tasks.iter().position(|task| task.ended_at.is_none_or(|at| at >= before));
        tasks.truncate(young.unwrap_or(tasks.len()));
        Ok(tasks)
    }

    /// Returns every stream that ever had an event.
    pub async fn event_streams(&mut self) -> Result<Vec<StreamName>, StoreError> {
        let sql = "select stream from streams where stream = 'platform' or stream like 'project/%' order by stream";
        let rows = self.rows(sql, Vec::new()).await?;
        rows.iter().map(|row| get_parsed(row, "stream")).collect()
    }

    /// Returns events of a stream from before `before` that are in no archive, oldest first, without gaps.
    pub async fn events_to_archive(
        &mut self,
        stream: StreamName,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let newest = self.last_sequence(stream).await?;
        let mut after = self.archived_until(&stream.to_string()).await?;
        // Most streams have no due event, which their first row shows.
        if !is_older_than(self.events(stream, after, 1).await?.first().map(|event| event.at), before) {
            return Ok(Vec::new());
        }
        let mut due: Vec<EventRecord> = Vec::new();
        while let Some(left) = limit.checked_sub(u32::try_from(due.len()).unwrap_or(u32::MAX)).filter(|left| *left > 0)
        {
            let page = self.events(stream, after, left).await?;
            let numbered = page.iter().map(|event| (event.sequence, event.at));
            let taken = consecutive(due.last().map(|event| event.sequence), numbered, before, newest);
            let is_whole = taken == page.len() && taken > 0;
            due.extend(page.into_iter().take(taken));
            if !is_whole {
                break;
            }
            after = due.last().map_or(after, |event| event.sequence);
        }
        Ok(due)
    }

    /// Returns audit records from before `before` that are in no archive, oldest first, without gaps.
    pub async fn audits_to_archive(&mut self, before: Timestamp, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let newest = self.last_audit().await?;
        let mut after = self.archived_until(ArchivedRange::AUDIT).await?;
        if !is_older_than(self.audits_after(after, 1).await?.first().map(|record| record.at), before) {
            return Ok(Vec::new());
        }
        let mut due: Vec<AuditRecord> = Vec::new();
        while let Some(left) = limit.checked_sub(u32::try_from(due.len()).unwrap_or(u32::MAX)).filter(|left| *left > 0)
        {
            let page = self.audits_after(after, left).await?;
            let numbered = page.iter().map(|record| (record.sequence, record.at));
            let taken = consecutive(due.last().map(|record| record.sequence), numbered, before, newest);
            let is_whole = taken == page.len() && taken > 0;
            due.extend(page.into_iter().take(taken));
            if !is_whole {
                break;
            }
            after = due.last().map_or(after, |record| record.sequence);
        }
        Ok(due)
    }

    /// Returns the last archived number of a stream; 0 if there is none.
    async fn archived_until(&mut self, stream: &str) -> Result<u64, StoreError> {
        let sql = "select last_sequence from archive_ranges where stream = $1 order by first_sequence desc limit 1";
        let row = self.row(sql, vec![text(stream)]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "last_sequence"))
    }

    /// Returns the archive that holds the audit record with this number, or the first one behind it, with the numbers
    /// of the records that it holds; `None` if no archive holds this or a later record.
    pub async fn archive_of_audit(&mut self, sequence: u64) -> Result<Option<(ArchiveId, ArchivedRange)>, StoreError> {
        let holding = "select archive_id, stream, first_sequence, last_sequence from archive_ranges \
                       where stream = $1 and first_sequence <= $2 order by first_sequence desc limit 1";
        let behind = "select archive_id, stream, first_sequence, last_sequence from archive_ranges \
                      where stream = $1 and first_sequence > $2 order by first_sequence limit 1";
        for sql in [holding, behind] {
            let Some(row) = self.row(sql, vec![text(ArchivedRange::AUDIT), int(sequence)]).await? else { continue };
            let range = archived_range(&row)?;
            if range.last >= sequence {
                return Ok(Some((get_parsed(&row, "archive_id")?, range)));
            }
        }
        Ok(None)
    }

    /// Returns the next archived range whose rows may still exist.
    pub(crate) async fn next_range_to_delete(&mut self) -> Result<Option<ArchivedRange>, StoreError> {
        let sql = "select stream, first_sequence, last_sequence from archive_ranges where is_deleted = 0 \
                   order by stream, first_sequence limit 1";
        self.row(sql, Vec::new()).await?.map(|row| archived_range(&row)).transpose()
    }
}

fn archived_range(row: &Row) -> Result<ArchivedRange, StoreError> {
    Ok(ArchivedRange {
        stream: row.text("stream")?.to_owned(),
        first: get_count(row, "first_sequence")?,
        last: get_count(row, "last_sequence")?,
    })
}

fn is_older_than(oldest: Option<Timestamp>, before: Timestamp) -> bool {
    oldest.is_some_and(|at| at < before)
}

/// Returns how many of these records are due: all up to the first one that is too young, the newest of the stream, or
/// not consecutive.
fn consecutive(
    mut last: Option<u64>,
    numbered: impl Iterator<Item = (u64, Timestamp)>,
    before: Timestamp,
    newest: u64,
) -> usize {
    let mut follows = |sequence| last.replace(sequence).is_none_or(|last| sequence == last + 1);
    numbered.take_while(|(sequence, at)| *at < before && *sequence < newest && follows(*sequence)).count()
}
