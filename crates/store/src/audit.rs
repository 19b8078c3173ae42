//! The audit log: append-only, written in the transaction of the change that it records.

use gpuaas_model::{AuditAction, AuditResult, CorrelationId, ProjectId, Timestamp, WorkloadId};
use serde_json::Value as Json;

use crate::{
    error::StoreError,
    event::{Numbered, numbered},
    page::Page,
    query::{Row, Value, get_count, get_int, get_optional, get_parsed, get_text, int, text, text_or_empty},
    record::{AuditRecord, NewAudit},
    select::Select,
    store::{Reader, Tx},
};

/// Name of the audit's counter in the table `streams`; no event stream has this name.
pub(crate) const SEQUENCE: &str = "audit";

/// Key in the stored metadata for the token that acted. No action uses this key for its own metadata, and readers do
/// not get it. It is not a column because audit rows are immutable, so existing rows could not be filled in.
const BY: &str = "$by";

/// Selects audit records; absent conditions match all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only records of this actor.
    pub actor: Option<String>,
    /// Only records about this target.
    pub target: Option<String>,
    /// Only records of this action.
    pub action: Option<AuditAction>,
    /// Only records with this result.
    pub result: Option<AuditResult>,
    /// Only records of this project.
    pub project: Option<ProjectId>,
    /// Only records about this workload, those of its tasks included.
    pub workload: Option<WorkloadId>,
    /// Only records with this correlation id.
    pub correlation: Option<CorrelationId>,
    /// Only records at or after this time.
    pub since: Option<Timestamp>,
    /// Only records before this time.
    pub until: Option<Timestamp>,
    /// Only records with a higher number.
    pub after: u64,
    /// Only records with a lower number, newest first; [`AuditFilter::NEWEST`] for the newest of all.
    pub before: Option<u64>,
    /// Most records to return; at most [`Page::LIMIT_MAX`].
    pub limit: Option<u32>,
}

impl AuditFilter {
    /// The value of `before` for the newest records.
    pub const NEWEST: u64 = u64::MAX;
}

const AUDIT: Numbered = numbered!(
    "audit",
    "at, actor, actor_type, action, target, project_id, workload_id, result, correlation, metadata",
    "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11"
);

impl Tx {
    /// Appends a record with the next number.
    pub async fn append_audit(&mut self, record: &NewAudit) -> Result<(), StoreError> {
        let values = vec![
            Value::Int(self.clock.now().as_millis()),
            text(&record.actor),
            text(record.actor_type),
            text(record.action),
            text(&record.target),
            text_or_empty(record.project),
            text_or_empty(record.workload),
            text(record.result),
            text_or_empty(record.correlation),
            text(metadata_to_store(record)?),
        ];
        self.insert_numbered(&AUDIT, text(SEQUENCE), values).await?;
        self.announced.has_audit = true;
        Ok(())
    }
}

impl Reader {
    /// Returns audit records, oldest first, or newest first below the number `before`.
    pub async fn audits(&mut self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, StoreError> {
        self.selected(list(filter)).await?.iter().map(audit).collect()
    }
}

impl Reader {
    /// Returns audit records with a number above `after`, oldest first, at most `limit`.
    pub(crate) async fn audits_after(&mut self, after: u64, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = "select * from audit where sequence > $1 order by sequence limit $2";
        let limit = Value::Int(i64::from(limit.min(Page::LIMIT_MAX)));
        self.rows(sql, vec![int(after), limit]).await?.iter().map(audit).collect()
    }

    /// Returns the audit records with a number above `after`, oldest first, at most `limit`. A row that is no record is
    /// returned without one, because a verification must report it.
    pub async fn chained_records(&mut self, after: u64, limit: u32) -> Result<Vec<ChainedRecord>, StoreError> {
        let sql = "select * from audit where sequence > $1 order by sequence limit $2";
        let limit = Value::Int(i64::from(limit.min(Page::LIMIT_MAX)));
        self.rows(sql, vec![int(after), limit]).await?.iter().map(chained).collect()
    }

    /// Returns the number of the newest audit record according to the counter; 0 if there never was one.
    pub async fn last_audit(&mut self) -> Result<u64, StoreError> {
        let row = self.row("select last_sequence from streams where stream = 'audit'", Vec::new()).await?;
        row.map_or(Ok(0), |row| get_count(&row, "last_sequence"))
    }
}

/// An audit record as a link of the chain that seals form.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainedRecord {
    /// The number of the row; [`u64::MAX`] if it has none.
    pub sequence: u64,
    /// The record; `None` if the row cannot be read as one.
    pub record: Option<AuditRecord>,
}

fn chained(row: &Row) -> Result<ChainedRecord, StoreError> {
    // SQLite also keeps a text in a column of numbers, and sorts it behind all of them.
    let sequence = get_count(row, "sequence").unwrap_or(u64::MAX);
    match audit(row) {
        Ok(record) => Ok(ChainedRecord { sequence, record: Some(record) }),
        Err(StoreError::Corrupt(_)) => Ok(ChainedRecord { sequence, record: None }),
        Err(error) => Err(error),
    }
}

/// Returns the metadata to store, including the token that acted.
fn metadata_to_store(record: &NewAudit) -> Result<Json, StoreError> {
    let mut metadata = record.metadata.clone();
    if let Some(by) = record.by {
        let fields = metadata.as_object_mut();
        let none = || StoreError::Database("the metadata of an audit record is not a JSON object".to_owned());
        let fields = fields.ok_or_else(none)?;
        fields.insert(BY.to_owned(), serde_json::to_value(by).map_err(StoreError::not_serializable)?);
    }
    Ok(metadata)
}

pub(crate) fn audit(row: &Row) -> Result<AuditRecord, StoreError> {
    let mut metadata: Json = row.record("metadata")?;
    let by = metadata.as_object_mut().and_then(|fields| fields.remove(BY));
    Ok(AuditRecord {
        sequence: get_count(row, "sequence")?,
        at: Timestamp::from_millis(get_int(row, "at")?),
        actor: get_text(row, "actor")?,
        actor_type: get_parsed(row, "actor_type")?,
        by: by.map(serde_json::from_value).transpose().map_err(|error| row.corrupt("metadata", error))?,
        action: get_parsed(row, "action")?,
        target: get_text(row, "target")?,
        project: get_optional(row, "project_id")?,
        workload: get_optional(row, "workload_id")?,
        result: get_parsed(row, "result")?,
        correlation: get_optional(row, "correlation")?,
        metadata,
    })
}

/// Returns the statement for a page of audit records. Only the most selective condition uses an index: SQLite, which
/// keeps no statistics, would prefer all records of an action to those of one workload.
pub(crate) fn list(filter: &AuditFilter) -> Select {
    let conditions = [
        ("workload_id", filter.workload.map(|id| id.to_string())),
        ("correlation", filter.correlation.map(|id| id.to_string())),
        ("target", filter.target.clone()),
        ("project_id", filter.project.map(|id| id.to_string())),
        ("actor", filter.actor.clone()),
        ("action", filter.action.map(|action| action.to_string())),
    ];
    let mut given = conditions.into_iter().filter(|(_, value)| value.is_some());
    let mut list = Select::all("* from audit");
    if let Some((column, value)) = given.next() {
        list = list.equal_indexed(column, value);
    }
    for (column, value) in given {
        list = list.equal_unindexed(column, value);
    }
    // Few values, and no index.
    list = list.equal_unindexed("result", filter.result);
    let limit = Value::Int(i64::from(filter.limit.unwrap_or(Page::LIMIT_MAX).clamp(1, Page::LIMIT_MAX)));
    let bounds = (filter.after == 0, filter.before.is_none_or(|before| before == AuditFilter::NEWEST));
    let list = list.within("audit", (filter.since, filter.until), bounds);
    match filter.before {
        Some(before) => list.page_before("sequence", int(before), limit),
        None => list.page_after("sequence", int(filter.after), limit),
    }
}
