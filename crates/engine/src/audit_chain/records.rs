//! The audit records in the order of their numbers, whether the database or an archive holds them.

use std::collections::VecDeque;

use gpuaas_model::ArchiveId;
use gpuaas_store::{ArchiveRecord, AuditRecord, ChainedRecord, Page};
use serde::Deserialize;

use super::ChainError;
use crate::engine::Engine;

/// Reads the records page by page. Holds one page, or the records of one archive.
pub(crate) struct ChainRecords<'a> {
    engine: &'a Engine,
    /// Records that were read and not returned yet, so that seals of few records share a page.
    ahead: VecDeque<ChainedRecord>,
    /// Whether they are from an archive.
    is_archived: bool,
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
        Self { engine, ahead: VecDeque::new(), is_archived: false, from_archives: 0 }
    }

    /// Returns consecutive records that follow the number `after`, up to the number `last`; none if there are none. If the first one is not
    /// the next number, the records before it are missing.
    pub(crate) async fn next(&mut self, after: u64, last: u64) -> Result<Vec<ChainedRecord>, ChainError> {
        if self.ahead.front().is_none_or(|first| first.sequence != after + 1) {
            self.read_from(after + 1).await?;
        }
        let mut page: Vec<ChainedRecord> = Vec::new();
        while let Some(record) = self.ahead.pop_front() {
            let follows = page.last().is_none_or(|before| record.sequence == before.sequence + 1);
            if record.sequence > last || !follows {
                self.ahead.push_front(record);
                break;
            }
            page.push(record);
        }
        if self.is_archived {
            self.from_archives += page.len() as u64;
        }
        Ok(page)
    }

    /// Reads the records from the number `next` on, from the archive that holds this one if the database does not.
    async fn read_from(&mut self, next: u64) -> Result<(), ChainError> {
        // One snapshot, so that no record moves from the database to an archive in between.
        let mut reader = self.engine.store().read().await?;
        let rows = reader.chained_records(next - 1, Page::LIMIT_MAX).await?;
        let is_in_rows = rows.first().is_some_and(|first| first.sequence == next);
        let archive = if is_in_rows { None } else { reader.archive_of_audit(next).await? };
        drop(reader);
        let Some(archive) = archive else {
            (self.ahead, self.is_archived) = (rows.into(), false);
            return Ok(());
        };
        let mut records = self.read(&archive, next).await?;
        records.retain(|of| of.sequence >= next);
        if records.front().is_none_or(|first| first.sequence != next) {
            return Err(unreadable(archive.id, next, "the archive does not contain it"));
        }
        (self.ahead, self.is_archived) = (records, true);
        Ok(())
    }

    async fn read(&self, archive: &ArchiveRecord, next: u64) -> Result<VecDeque<ChainedRecord>, ChainError> {
        let failed = |why: String| unreadable(archive.id, next, why);
        let lines = self.engine.archive_files().read(&archive.sha256).await.map_err(failed)?;
        let mut records = VecDeque::new();
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
