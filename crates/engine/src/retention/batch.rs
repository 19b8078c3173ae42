//! The content of one archive, as lines of JSON. The same rows give the same bytes.

use gpuaas_model::{ArchiveKind, OperationId, TaskId, Timestamp};
use gpuaas_store::{ArchivedRange, AuditRecord, EventRecord, OperationRecord, Reader, StepRecord, TaskRecord};
use serde::Serialize;
use serde_json::json;

use super::RetentionError;

/// Maximum number of operations per archive; each has about fifty rows.
const OPERATIONS_MAX: u32 = 50;
/// Maximum number of tasks, events or audit records per archive.
const ENTRIES_MAX: u32 = 2_000;
/// An archive whose lines have reached this many bytes takes no further entry.
const LINES_BYTES_MAX: usize = 16 * 1_024 * 1_024;
/// Version of the line format.
const FORMAT: u32 = 1;

/// The content of an archive, and the rows that it covers.
pub(super) struct Batch {
    pub(super) kind: ArchiveKind,
    pub(super) lines: Vec<u8>,
    pub(super) entries: u64,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) ranges: Vec<ArchivedRange>,
    pub(super) operations: Vec<OperationId>,
    pub(super) tasks: Vec<TaskId>,
}

/// One line of an archive. Times are in milliseconds since the Unix epoch.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    /// The first line.
    Archive {
        format: u32,
        kind: ArchiveKind,
    },
    Operation(&'a OperationRecord),
    Step(&'a StepRecord),
    Task(&'a TaskRecord),
    Event(serde_json::Value),
    Audit(&'a AuditRecord),
}

impl Batch {
    /// Reads the oldest due entries of the given kind; `None` if there are none.
    pub(super) async fn next(
        reader: &mut Reader,
        kind: ArchiveKind,
        before: Timestamp,
    ) -> Result<Option<Self>, RetentionError> {
        let (from, until) = (Timestamp::from_millis(i64::MAX), Timestamp::from_millis(0));
        let (ranges, operations, tasks) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Self { kind, lines: Vec::new(), entries: 0, from, until, ranges, operations, tasks };
        batch.write(&Line::Archive { format: FORMAT, kind })?;
        match kind {
            ArchiveKind::Operations => batch.take_operations(reader, before).await?,
            ArchiveKind::Tasks => batch.take_tasks(reader, before).await?,
            ArchiveKind::Events => batch.take_events(reader, before).await?,
            ArchiveKind::Audit => batch.take_audit(reader, before).await?,
        }
        Ok((batch.entries > 0).then_some(batch))
    }

    async fn take_operations(&mut self, reader: &mut Reader, before: Timestamp) -> Result<(), RetentionError> {
        for operation in reader.operations_to_archive(before, OPERATIONS_MAX).await? {
            self.write(&Line::Operation(&operation))?;
            for step in reader.steps_of(operation.id).await? {
                self.write(&Line::Step(&step))?;
            }
            for task in reader.tasks_of(operation.id).await? {
                self.write(&Line::Task(&task))?;
            }
            self.count(operation.created_at, operation.ended_at);
            self.operations.push(operation.id);
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    async fn take_tasks(&mut self, reader: &mut Reader, before: Timestamp) -> Result<(), RetentionError> {
        for task in reader.tasks_to_archive(before, ENTRIES_MAX).await? {
            self.write(&Line::Task(&task))?;
            self.count(task.created_at, task.ended_at);
            self.tasks.push(task.id);
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    async fn take_events(&mut self, reader: &mut Reader, before: Timestamp) -> Result<(), RetentionError> {
        for stream in reader.event_streams().await? {
            let remaining = u64::from(ENTRIES_MAX).saturating_sub(self.entries);
            if remaining == 0 || self.is_full() {
                break;
            }
            let limit = u32::try_from(remaining).unwrap_or(ENTRIES_MAX);
            for event in reader.events_to_archive(stream, before, limit).await? {
                self.write(&Line::Event(event_json(&event)))?;
                self.count(event.at, None);
                self.extend(&stream.to_string(), event.sequence);
                if self.is_full() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn take_audit(&mut self, reader: &mut Reader, before: Timestamp) -> Result<(), RetentionError> {
        for record in reader.audits_to_archive(before, ENTRIES_MAX).await? {
            self.write(&Line::Audit(&record))?;
            self.count(record.at, None);
            self.extend(ArchivedRange::AUDIT, record.sequence);
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, line: &Line<'_>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.push(b'\n');
        Ok(())
    }

    fn count(&mut self, began: Timestamp, ended: Option<Timestamp>) {
        self.entries += 1;
        self.from = self.from.min(began);
        self.until = self.until.max(ended.unwrap_or(began));
    }

    /// Extends the range of a stream by a number. Numbers of a stream must come in order.
    fn extend(&mut self, stream: &str, sequence: u64) {
        match self.ranges.last_mut().filter(|range| range.stream == stream) {
            Some(range) => range.last = sequence,
            None => self.ranges.push(ArchivedRange { stream: stream.to_owned(), first: sequence, last: sequence }),
        }
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= LINES_BYTES_MAX
    }
}

fn event_json(event: &EventRecord) -> serde_json::Value {
    let EventRecord { stream, sequence, at, kind, subject_kind, subject_id, correlation, data } = event;
    json!({
        "stream": stream.to_string(), "sequence": sequence, "at": at, "kind": kind, "subject_kind": subject_kind,
        "subject_id": subject_id, "correlation": correlation, "data": data,
    })
}
