//! The audit records in the order of their numbers, whether the database or an archive holds them.

use std::{collections::VecDeque, fmt};

use gpuaas_model::{ArchiveId, ChainDefectKind};
use gpuaas_store::{AuditRecord, ChainedRecord, Page, Reader, Store, StoreError};
use serde::Deserialize;

use super::{ChainError, readable};
use crate::port::{ArchiveFiles, ArchiveReadError};

/// What follows a record.
pub(crate) enum Segment {
    /// The next records, at least one, with consecutive numbers.
    Records(Vec<ChainedRecord>),
    /// Records that cannot be read.
    Gap(Gap),
}

/// Consecutive records that cannot be read.
pub(crate) struct Gap {
    /// The number of the first one.
    pub(crate) first: u64,
    /// The number of the last one; may be above the number up to which records were asked for.
    pub(crate) last: u64,
    /// Why they cannot be read.
    pub(crate) cause: Cause,
}

/// Why records cannot be read.
pub(crate) enum Cause {
    /// Neither the database nor an archive has them.
    Missing,
    /// The row that names their archive is none.
    Unreadable(String),
    /// The archive that claims them cannot be read.
    Archive { id: ArchiveId, error: ArchiveReadError },
}

impl Gap {
    /// How the audit differs. Fails if the records may be readable later.
    pub(super) fn defect(&self) -> Result<ChainDefectKind, ChainError> {
        match &self.cause {
            Cause::Missing | Cause::Archive { error: ArchiveReadError::Missing, .. } => Ok(ChainDefectKind::Missing),
            Cause::Unreadable(_) | Cause::Archive { error: ArchiveReadError::Changed(_), .. } => {
                Ok(ChainDefectKind::Changed)
            }
            Cause::Archive { id, error: ArchiveReadError::Failed(why) } => {
                Err(ChainError::Archive { archive: *id, record: self.first, why: why.clone() })
            }
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first, self.last);
        let (which, are) = match first == last {
            true => (format!("record {first}"), "is"),
            false => (format!("records {first} to {last}"), "are"),
        };
        match &self.cause {
            Cause::Missing => write!(f, "{which} {are} missing"),
            Cause::Unreadable(why) => write!(f, "{which} cannot be read: {why}"),
            Cause::Archive { id, error } => write!(f, "{which} cannot be read from archive {id}: {error}"),
        }
    }
}

/// Reads the records page by page. Holds one page, or the records of one archive.
pub(crate) struct ChainRecords<'a> {
    store: &'a Store,
    archives: &'a dyn ArchiveFiles,
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
    pub(crate) fn of(store: &'a Store, archives: &'a dyn ArchiveFiles) -> Self {
        Self { store, archives, ahead: VecDeque::new(), is_archived: false, from_archives: 0 }
    }

    /// Returns what follows the number `after`, which is lower than `last`: records up to the number `last`, or a gap. The numbers `after`
    /// of successive calls must rise.
    pub(crate) async fn next(&mut self, after: u64, last: u64) -> Result<Segment, ChainError> {
        let next = after + 1;
        while self.ahead.front().is_some_and(|first| first.sequence < next) {
            self.ahead.pop_front();
        }
        if self.ahead.front().is_none_or(|first| first.sequence != next)
            && let Some(gap) = self.read_from(next, last).await?
        {
            return Ok(Segment::Gap(gap));
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
        Ok(Segment::Records(page))
    }

    /// Reads the records from the number `next` on, from the archive that holds this one if the database does not. Returns a gap if neither
    /// does.
    async fn read_from(&mut self, next: u64, last: u64) -> Result<Option<Gap>, ChainError> {
        // One snapshot, so that no record moves from the database to an archive in between.
        let mut reader = self.store.read().await?;
        let row = self.first_row(&mut reader, next).await?;
        if row == Some(next) {
            return Ok(None);
        }
        let gap = |ends: [Option<u64>; 2], cause: Cause| {
            let last = ends.into_iter().flatten().min().map_or(last, |first| first - 1);
            Some(Gap { first: next, last, cause })
        };
        let found = match readable(reader.archive_of_audit(next).await)? {
            Ok(found) => found,
            Err(why) => return Ok(gap([row, None], Cause::Unreadable(why))),
        };
        let (id, range) = match found {
            Some((id, range)) if range.first <= next => (id, range),
            behind => {
                let ends = [row, behind.map(|(_, range)| range.first)];
                if ends == [None, None] {
                    let last = written(&mut reader).await?.max(last);
                    return Ok(Some(Gap { first: next, last, cause: Cause::Missing }));
                }
                return Ok(gap(ends, Cause::Missing));
            }
        };
        let archive = readable(reader.archive(id).await)?.map_err(ArchiveReadError::Changed);
        drop(reader);
        let read = match archive {
            Ok(archive) => self.read(&archive.sha256).await,
            Err(error) => Err(error),
        };
        let mut records = match read {
            Ok(records) => records,
            Err(error) => return Ok(gap([row, range.last.checked_add(1)], Cause::Archive { id, error })),
        };
        records.retain(|of| (next..=range.last).contains(&of.sequence));
        match records.front().map(|first| first.sequence) {
            Some(first) if first == next => {
                (self.ahead, self.is_archived) = (records, true);
                Ok(None)
            }
            // The archive does not contain what it claims.
            first => Ok(gap([row, first.or(range.last.checked_add(1))], Cause::Missing)),
        }
    }

    /// Reads rows from the number `next` on, unless those that are ahead are the next ones. Returns the number of the first.
    async fn first_row(&mut self, reader: &mut Reader, next: u64) -> Result<Option<u64>, StoreError> {
        let ahead = self.ahead.front().filter(|_| !self.is_archived).map(|first| first.sequence);
        if ahead.is_none() || reader.chained_records(next - 1, 1).await?.first().map(|first| first.sequence) != ahead {
            self.ahead = reader.chained_records(next - 1, Page::LIMIT_MAX).await?.into();
            self.is_archived = false;
        }
        // A row without a number is behind no gap.
        Ok(self.ahead.front().map(|first| first.sequence).filter(|first| *first != u64::MAX))
    }

    async fn read(&self, sha256: &str) -> Result<VecDeque<ChainedRecord>, ArchiveReadError> {
        let lines = self.archives.read(sha256).await?;
        let mut records = VecDeque::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: ArchiveLine =
                serde_json::from_slice(line).map_err(|error| ArchiveReadError::Changed(error.to_string()))?;
            records.extend(line.audit.map(|of| ChainedRecord { sequence: of.sequence, record: Some(of) }));
        }
        Ok(records)
    }
}

/// Returns the number of the newest record according to the counter; 0 if its row cannot be read.
async fn written(reader: &mut Reader) -> Result<u64, ChainError> {
    Ok(readable(reader.last_audit().await)?.unwrap_or(0))
}
