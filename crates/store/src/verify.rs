//! Verifies every row of a store without changing anything.
//!
//! Deliberately absent: the bytes of artifacts, and files next to the store (`server`).

mod rows;

use std::sync::Arc;

use serde::Serialize;

use crate::{
    database::Connection,
    dump,
    error::StoreError,
    inspect, migrate,
    options::StoreOptions,
    query::{Value, get_count, get_int, get_text},
    record::ArtifactRecord,
    record_verifier::RecordProof,
    store::Store,
};
use rows::Rows;

/// Most findings of one check of the database that are reported one by one: more do not help with a damaged database.
const FINDINGS_MAX: usize = 100;

/// A defect at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of defect.
    pub kind: FindingKind,
    /// The place: a file, a table, or a table with a row and a column.
    pub place: String,
    /// A description of the defect.
    pub detail: String,
}

/// The kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The database files are damaged.
    Database,
    /// The schema is not this version's.
    Schema,
    /// A row refers to a missing row.
    ForeignKey,
    /// A row cannot be read as its record type, or its columns disagree with its document.
    Row,
    /// No held key proves that the platform wrote the row.
    Forged,
    /// No held key opens the sealed value.
    Sealed,
    /// Events or audit records have a gap, or a number above their counter.
    Sequence,
    /// A sealing key is missing, or it is not the key that the rows are under.
    Key,
    /// An artifact is missing, or its bytes do not match its digest.
    Artifact,
    /// The rows lack acknowledged changes, or it cannot be determined whether they do.
    History,
    /// An action was begun and not finished.
    Interrupted,
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifiedRows {
    /// The schema version of the store; 0 if it could not be read.
    pub schema: i64,
    /// Number of rows read.
    pub rows: u64,
    /// Number of sealed values that were opened.
    pub sealed: u64,
    /// Every artifact in the rows.
    pub artifacts: Vec<ArtifactRecord>,
    /// All defects found.
    pub findings: Vec<Finding>,
}

impl VerifiedRows {
    pub(crate) fn add_finding(&mut self, kind: FindingKind, place: impl Into<String>, detail: impl Into<String>) {
        self.findings.push(Finding { kind, place: place.into(), detail: detail.into() });
    }

    /// Records an error of the store as a finding if it describes a defect; returns other errors.
    fn add_error(&mut self, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Corrupt(bad) => {
                let place = format!("table {}, row {}, column {}", bad.table(), bad.row(), bad.column());
                self.add_finding(FindingKind::Row, place, bad.why());
            }
            StoreError::Damaged { place, detail } => self.add_finding(FindingKind::Database, place, detail),
            other => return Err(other),
        }
        Ok(())
    }
}

impl StoreOptions {
    /// Reads every row from one snapshot. With a proof, also verifies codes and opens sealed values; `sealed_settings`
    /// names the settings with sealed values.
    pub async fn verify(
        &self,
        proof: Option<Arc<dyn RecordProof>>,
        sealed_settings: &[&str],
    ) -> Result<VerifiedRows, StoreError> {
        let mut verified = VerifiedRows::default();
        match self.verify_into(&mut verified, proof, sealed_settings).await {
            Ok(()) => {}
            Err(error) => verified.add_error(error)?,
        }
        Ok(verified)
    }

    async fn verify_into(
        &self,
        verified: &mut VerifiedRows,
        proof: Option<Arc<dyn RecordProof>>,
        sealed_settings: &[&str],
    ) -> Result<(), StoreError> {
        let Some(mut connection) = self.open_to_read().await? else { return Ok(()) };
        if let Connection::Postgres(_) = &connection {
            connection.run("set local statement_timeout = 0").await?;
        } else {
            database(&mut connection, verified, &self.place()).await?;
        }
        if !schema(&mut connection, verified).await? {
            return Ok(());
        }
        let known = inspect::tables(&mut connection, self.check()?).await?;
        let mut rows = Rows::new(verified, proof, sealed_settings);
        for table in dump::every_table().filter(|table| known.iter().any(|known| known == table)) {
            let read = connection.each_row(format!("select * from {table}"), Vec::new(), |row| rows.take(table, &row));
            if let Err(error) = read.await {
                rows.add_error(error)?;
            }
        }
        sequences(&mut connection, verified).await
    }
}

impl Store {
    /// Reads every row of a dump's tables as this version's records. Fails with [`StoreError::Corrupt`] at the first
    /// unreadable row. Does not verify codes or sealed values.
    pub async fn read_every_row(&self) -> Result<(), StoreError> {
        let mut reader = self.read().await?;
        for table in dump::TABLES {
            let (mut verified, mut is_read) = (VerifiedRows::default(), Ok(()));
            let mut rows = Rows::new(&mut verified, None, &[]);
            let read = reader.connection()?.each_row(format!("select * from {table}"), Vec::new(), |row| {
                is_read = rows.read(table, &row);
                is_read.is_ok()
            });
            read.await?;
            is_read?;
        }
        Ok(())
    }
}

async fn database(connection: &mut Connection, verified: &mut VerifiedRows, place: &str) -> Result<(), StoreError> {
    for line in inspect::findings(connection, "integrity_check", FINDINGS_MAX).await? {
        verified.add_finding(FindingKind::Database, place, line);
    }
    for row in connection.rows("pragma foreign_key_check", Vec::new(), FINDINGS_MAX).await? {
        let place = format!("table {}, rowid {}", get_text(&row, "table")?, get_int(&row, "rowid").unwrap_or_default());
        verified.add_finding(
            FindingKind::ForeignKey,
            place,
            format!("its row in {} is missing", get_text(&row, "parent")?),
        );
    }
    Ok(())
}

/// Returns whether the schema is this version's, so that rows can be read.
async fn schema(connection: &mut Connection, verified: &mut VerifiedRows) -> Result<bool, StoreError> {
    let sql = "select coalesce(max(version), 0) as version from schema_versions";
    let found = connection.rows(sql, Vec::new(), 1).await?.first().map_or(Ok(0), |row| get_int(row, "version"))?;
    verified.schema = found;
    if found < migrate::NEWEST {
        let detail = format!(
            "the store has schema version {found}, but this program needs {}: start it once, or verify with the version that wrote the rows",
            migrate::NEWEST
        );
        verified.add_finding(FindingKind::Schema, "table schema_versions", detail);
        return Ok(false);
    }
    match migrate::check(connection).await {
        Ok(()) => Ok(true),
        Err(error) => verified.add_error(error).map(|()| true),
    }
}

/// Checks that events and audit records are numbered without gaps, up to their counter.
async fn sequences(connection: &mut Connection, verified: &mut VerifiedRows) -> Result<(), StoreError> {
    let sql = "select n.name as name, n.lowest as lowest, n.newest as newest, n.rows as rows, \
               coalesce((select last_sequence from streams where stream = n.name), 0) as last from ( \
               select stream as name, min(sequence) as lowest, max(sequence) as newest, count(*) as rows from events group by stream \
               union all select 'audit' as name, coalesce(min(sequence), 1) as lowest, coalesce(max(sequence), 0) as newest, \
               count(*) as rows from audit) as n";
    for row in connection.rows(sql, Vec::<Value>::new(), usize::MAX).await? {
        let (name, last, newest) = (get_text(&row, "name")?, get_count(&row, "last")?, get_count(&row, "newest")?);
        let (lowest, rows) = (get_count(&row, "lowest")?, get_count(&row, "rows")?);
        if newest > last {
            let detail = format!("the newest number is {newest}, but the counter is at {last}");
            verified.add_finding(FindingKind::Sequence, format!("stream {name}"), detail);
        }
        if rows != (newest + 1).saturating_sub(lowest) {
            let detail = format!("{rows} rows are numbered from {lowest} to {newest}");
            verified.add_finding(FindingKind::Sequence, format!("stream {name}"), detail);
        }
    }
    Ok(())
}
