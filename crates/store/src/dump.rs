//! All rows as lines of JSON, and back. The form knows no database: what one wrote, the other reads.
//!
//! Deliberately absent: rows that say who is alive now. Leases come back ended and their fences raised, because nodes refuse whatever is
//! signed under a lower fence than they have seen, and they may have seen higher ones since the dump. What a dump brings back that has ended since is
//! told apart by whoever restores it, with a key that the store does not hold.

use std::io::{BufRead, Write};

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    database::{self, Row},
    error::StoreError,
    migrate,
    query::Value,
    store::Store,
};

/// Every table that is dumped, in an order in which each refers only to earlier ones.
const TABLES: [&str; 22] = [
    "settings",
    "authorities",
    "signing_keys",
    "projects",
    "service_accounts",
    "tokens",
    "nodes",
    "node_keys",
    "enrollments",
    "allocations",
    "artifacts",
    "workloads",
    "members",
    "operations",
    "steps",
    "tasks",
    "secrets",
    "access_grants",
    "leases",
    "streams",
    "events",
    "audit",
];
/// Tables that are not: who is alive now, what was answered lately, and the schema itself.
const NOT_DUMPED: [&str; 4] = ["replicas", "sessions", "idempotency", "schema_versions"];
/// By how much numbers that only grow leap over what a dump knows of them: fences, the version of the key set, a node's epoch. Each grows by one with
/// a change.
const LEAP: u64 = 1_000_000;
/// The setting that says that rows came out of a backup, and that what must not come back with them has not been ended yet.
pub const RESTORED: &str = "restore.unfinished";
/// Longest line that is read, in bytes; the largest record is a task with its envelope and evidence.
const LINE_BYTES_MAX: u64 = 16 * 1_024 * 1_024;

/// Why rows could not be dumped or restored.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("the rows cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// It is no dump, or not a whole one.
    #[error("line {line} of the rows makes no sense: {why}")]
    Malformed {
        /// Which, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// A version with another schema wrote it.
    #[error("the rows are of schema {found}, and this version's is {known}")]
    Schema {
        /// The dump's.
        found: i64,
        /// This version's.
        known: i64,
    },
    /// There are rows already.
    #[error("the store is not empty: table {0} has rows")]
    NotEmpty(&'static str),
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first.
    Schema(i64),
    /// The rows that follow are of this table.
    Table { name: String, columns: Vec<String> },
    /// One row.
    Row(Vec<Cell>),
    /// The last.
    End { rows: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob { hex: String },
}

impl Store {
    /// Writes all rows as they are at one moment. Returns how many.
    pub async fn dump(&self, into: &mut (dyn Write + Send)) -> Result<u64, DumpError> {
        let mut reader = self.read().await?;
        let mut rows = 0;
        write(into, &Line::Schema(migrate::NEWEST))?;
        for table in TABLES {
            let (mut begun, mut written) = (false, Ok(()));
            let found = reader.connection()?.each_row(format!("select * from {table}"), Vec::new(), |row| {
                written = write_row(into, table, row, &mut begun);
                rows += u64::from(written.is_ok());
                written.is_ok()
            });
            found.await?;
            written?;
        }
        write(into, &Line::End { rows })?;
        Ok(rows)
    }

    /// Reads a dump into a store without rows: all of it, marked as [`RESTORED`], or nothing. Returns how many.
    pub async fn restore(&self, from: &mut (dyn BufRead + Send)) -> Result<u64, DumpError> {
        let mut tx = self.begin().await?;
        for table in TABLES {
            let sql = format!("select count(*) as rows from {table}");
            let counted = tx.connection()?.rows(sql, Vec::new(), 1).await?;
            if counted.first().map_or(Ok(0), |row| row.int("rows"))? > 0 {
                return Err(DumpError::NotEmpty(table));
            }
        }
        let (mut rows, mut number, mut table) = (0, 0, None);
        loop {
            number += 1;
            let malformed = |why: String| DumpError::Malformed { line: number, why };
            match read(from, number)? {
                Line::Schema(schema) if number == 1 && schema == migrate::NEWEST => {}
                Line::Schema(found) if number == 1 => return Err(DumpError::Schema { found, known: migrate::NEWEST }),
                Line::Table { name, columns } if number > 1 => table = Some((name, columns)),
                Line::Row(cells) => {
                    let into = table.as_ref().ok_or_else(|| malformed("a row without its table".to_owned()))?;
                    let (sql, values) = insertion(&into.0, &into.1, cells).map_err(malformed)?;
                    tx.execute(sql, values).await?;
                    rows += 1;
                }
                Line::End { rows: told } if told == rows => break,
                Line::Schema(_) | Line::Table { .. } | Line::End { .. } => {
                    return Err(malformed("it does not follow from the lines before".to_owned()));
                }
            }
        }
        let now = self.clock.now();
        let least = leapt(0, now);
        let sql = format!(
            "update leases set expires_at = 0, fence = case when fence + {LEAP} > {least} then fence + {LEAP} else {least} end"
        );
        tx.execute(sql, Vec::new()).await?;
        tx.put_setting_if_absent(RESTORED, now.to_string().as_bytes()).await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Every table of a fresh store and whether it is dumped: for the test that holds them together.
    pub fn dumped_tables() -> impl Iterator<Item = (&'static str, bool)> {
        TABLES.into_iter().map(|table| (table, true)).chain(NOT_DUMPED.into_iter().map(|table| (table, false)))
    }
}

/// A number that only grows, after a restore at `now`: beyond whatever it can have been since the dump. A second restore of the same dump leaps beyond
/// the first: time does, and no such number grows by one a second.
pub fn leapt(known: u64, now: Timestamp) -> u64 {
    let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
    known.saturating_add(LEAP).max(seconds)
}

fn write(into: &mut (dyn Write + Send), line: &Line) -> Result<(), DumpError> {
    serde_json::to_writer(&mut *into, line).map_err(std::io::Error::from)?;
    into.write_all(b"\n")?;
    Ok(())
}

fn read(from: &mut (dyn BufRead + Send), number: u64) -> Result<Line, DumpError> {
    let mut line = Vec::new();
    std::io::Read::take(from, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    let malformed = |why: String| DumpError::Malformed { line: number, why };
    if !line.ends_with(b"\n") {
        return Err(malformed("it breaks off".to_owned()));
    }
    serde_json::from_slice(&line).map_err(|error| malformed(error.to_string()))
}

/// Writes a row, and before a table's first its name and columns.
fn write_row(into: &mut (dyn Write + Send), table: &str, row: Row, begun: &mut bool) -> Result<(), DumpError> {
    if !*begun {
        write(into, &Line::Table { name: table.to_owned(), columns: row.columns().to_vec() })?;
        *begun = true;
    }
    write(into, &Line::Row(row.into_cells().into_iter().map(cell).collect()))
}

fn cell(cell: database::Cell) -> Cell {
    match cell {
        database::Cell::Null => Cell::Null,
        database::Cell::Int(int) => Cell::Int(int),
        database::Cell::Text(text) => Cell::Text(text),
        database::Cell::Blob(blob) => Cell::Blob { hex: hex::encode(blob) },
    }
}

fn value(cell: Cell) -> Result<Option<Value>, String> {
    Ok(Some(match cell {
        Cell::Null => return Ok(None),
        Cell::Int(int) => Value::Int(int),
        Cell::Text(text) => Value::Text(text),
        Cell::Blob { hex } => Value::Blob(hex::decode(hex).map_err(|_| "bytes that are not hex".to_owned())?),
    }))
}

/// The statement that inserts a row, with its values, or why there is none. A null is what a column is that is left out: so no statement needs to
/// know its type.
fn insertion(table: &str, columns: &[String], cells: Vec<Cell>) -> Result<(String, Vec<Value>), String> {
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if !TABLES.contains(&table) || !columns.iter().all(is_name) {
        return Err(format!("there is no {table}"));
    }
    if cells.len() != columns.len() {
        return Err("a row with other columns than its table".to_owned());
    }
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, cell) in columns.iter().zip(cells) {
        if let Some(value) = value(cell)? {
            names.push(name.as_str());
            values.push(value);
        }
    }
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    Ok((format!("insert into {table} ({}) values ({})", names.join(", "), places.join(", ")), values))
}
