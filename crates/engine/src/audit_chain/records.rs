//! The audit records in the order of their numbers, whether the database or an archive holds them.

use gpuaas_model::ArchiveId;
use gpuaas_store::{ArchiveRecord, AuditRecord, ChainedRecord, Page};
use serde::Deserialize;

use super::ChainError;
use crate::engine::Engine;

/// Reads the records page by page. Holds one page, or the records of one archive.
pub(crate) struct ChainRecords<'a> {
    engine: &'a Engine,
    archived: Vec<ChainedRecord>,
    /// How many of the returned records came from archives.
    pub(super) from_archives: u64,
}

/// A line of an archive; lines of other kinds have no record.
#[derive(Deserialize)]
struct ArchiveLine {
    audit: Option<AuditRecord>,
}

impl<'a> ChainRecords<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Self {
        Self { engine, archived: Vec::new(), from_archives: 0 }
    }

    /// Returns records that follow the number `after`, up to the number `last`; none if there are none. If the first one is not the next
    /// number, the records before it are missing.
    pub(crate) async fn next(&mut self, after: u64, last: u64) -> Result<Vec<ChainedRecord>, ChainError> {
        let next = after + 1;
        let has_next = |records: &[ChainedRecord]| records.iter().any(|of| of.sequence == next);
        if !has_next(&self.archived) {
            // One snapshot, so that no record moves from the database to an archive in between.
            let mut reader = self.engine.store().read().await?;
            let rows = reader.chained_records(after, last, Page::LIMIT_MAX).await?;
            let is_in_rows = rows.first().is_some_and(|first| first.sequence == next);
            let archive = if is_in_rows { None } else { reader.archive_of_audit(next).await? };
            drop(reader);
            let Some(archive) = archive else { return Ok(rows) };
            self.archived = self.read(&archive, next).await?;
            if !has_next(&self.archived) {
                return Err(unreadable(archive.id, next, "the archive does not contain it"));
            }
        }
        let is_wanted = |of: &&ChainedRecord| of.sequence > after && of.sequence <= last;
        let page: Vec<ChainedRecord> = self.archived.iter().filter(is_wanted).cloned().collect();
        self.from_archives += page.len() as u64;
        Ok(page)
    }

    async fn read(&self, archive: &ArchiveRecord, next: u64) -> Result<Vec<ChainedRecord>, ChainError> {
        let failed = |why: String| unreadable(archive.id, next, why);
        let lines = self.engine.archive_files().read(&archive.sha256).await.map_err(failed)?;
        let mut records = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: ArchiveLine = serde_json::from_slice(line).map_err(|error| failed(error.to_string()))?;
            records.extend(line.audit.map(|of| ChainedRecord { sequence: of.sequence, record: Some(of) }));
        }
        Ok(records)
    }
}

fn unreadable(archive: ArchiveId, record: u64, why: impl Into<String>) -> ChainError {
    ChainError::Archive { archive, record, why: why.into() }
}
