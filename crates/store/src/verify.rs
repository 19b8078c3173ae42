//! Reads every row of a store as what it must be, and changes nothing.
//!
//! Deliberately absent: the bytes of artifacts, and files beside the store (`server`).

mod rows;

use std::sync::Arc;

use serde::Serialize;

use crate::{
    database::Connection,
    dump,
    error::StoreError,
    genuine::RecordProof,
    inspect, migrate,
    query::{Value, get_count, get_int, get_text},
    record::ArtifactRecord,
    store::{Store, StoreOptions},
};
use rows::Rows;

/// Findings of one kind that are told one by one: a database that is damaged all over needs no more.
const FINDINGS_MAX: usize = 100;

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Of which kind it is.
    pub kind: FindingKind,
    /// Where: a file, a table, or a table with a row and a column.
    pub place: String,
    /// What is wrong.
    pub detail: String,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The database's own files.
    Database,
    /// The schema is not this version's.
    Schema,
    /// A row refers to one that is not there.
    ForeignKey,
    /// A row cannot be read as its type, or its columns disagree with its document.
    Row,
    /// Nothing proves that the platform wrote a row.
    Forged,
    /// A sealed value opens with none of the keys.
    Sealed,
    /// Events or audit records have a gap, or a number beyond their counter.
    Sequence,
    /// A sealing key is missing or is not the one that the rows are under.
    Key,
    /// An artifact is missing, or its bytes are not those of its digest.
    Artifact,
    /// The rows lack what was acknowledged, or nothing tells whether they do.
    History,
    /// Something was begun and not finished.
    HalfWay,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct VerifiedRows {
    /// The schema of the store; 0 where it could not be read.
    pub schema: i64,
    /// How many rows.
    pub rows: u64,
    /// How many sealed values were opened.
    pub sealed: u64,
    /// Every artifact that rows name.
    pub artifacts: Vec<ArtifactRecord>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl VerifiedRows {
    pub(crate) fn find(&mut self, kind: FindingKind, place: impl Into<String>, detail: impl Into<String>) {
        self.findings.push(Finding { kind, place: place.into(), detail: detail.into() });
    }

    /// A failure of the store as a finding, where it is one.
    fn take(&mut self, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Corrupt(bad) => {
                let place = format!("table {}, row {}, column {}", bad.table(), bad.row(), bad.column());
                self.find(FindingKind::Row, place, bad.why());
            }
            StoreError::Damaged { place, detail } => self.find(FindingKind::Database, place, detail),
            other => return Err(other),
        }
        Ok(())
    }
}

impl StoreOptions {
    /// Reads every row of one moment. With a proof, codes are checked and sealed values opened; `sealed_settings` names the settings that are sealed.
    pub async fn verify(
        &self,
        proof: Option<Arc<dyn RecordProof>>,
        sealed_settings: &[&str],
    ) -> Result<VerifiedRows, StoreError> {
        let mut verified = VerifiedRows::default();
        match self.verify_into(&mut verified, proof, sealed_settings).await {
            Ok(()) => {}
            Err(error) => verified.take(error)?,
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
                rows.failed(error)?;
            }
        }
        sequences(&mut connection, verified).await
    }
}

impl Store {
    /// Reads every row that a dump holds as this version's records. Fails with [`StoreError::Corrupt`] at the first that it cannot read. Codes and
    /// sealed values are not checked.
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
        verified.find(FindingKind::Database, place, line);
    }
    for row in connection.rows("pragma foreign_key_check", Vec::new(), FINDINGS_MAX).await? {
        let place = format!("table {}, rowid {}", get_text(&row, "table")?, get_int(&row, "rowid").unwrap_or_default());
        verified.find(FindingKind::ForeignKey, place, format!("there is no such row in {}", get_text(&row, "parent")?));
    }
    Ok(())
}

/// Whether the schema is this version's, so that rows can be read.
async fn schema(connection: &mut Connection, verified: &mut VerifiedRows) -> Result<bool, StoreError> {
    let sql = "select coalesce(max(version), 0) as version from schema_versions";
    let found = connection.rows(sql, Vec::new(), 1).await?.first().map_or(Ok(0), |row| get_int(row, "version"))?;
    verified.schema = found;
    if found < migrate::NEWEST {
        let detail = format!(
            "it is of schema {found}, and this version's is {}: rows are read once a start has migrated it, or by the version that wrote it",
            migrate::NEWEST
        );
        verified.find(FindingKind::Schema, "table schema_versions", detail);
        return Ok(false);
    }
    match migrate::check(connection).await {
        Ok(()) => Ok(true),
        Err(error) => verified.take(error).map(|()| true),
    }
}

/// Events and audit are numbered without a gap, up to their counter.
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
            let detail = format!("its newest number is {newest}, and its counter says {last}");
            verified.find(FindingKind::Sequence, format!("stream {name}"), detail);
        }
        if rows != (newest + 1).saturating_sub(lowest) {
            let detail = format!("{rows} rows are numbered from {lowest} to {newest}");
            verified.find(FindingKind::Sequence, format!("stream {name}"), detail);
        }
    }
    Ok(())
}
