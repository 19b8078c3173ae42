//! Dumps all rows as lines of JSON and restores them. The format is independent of the database: a dump of SQLite can
//! be restored into PostgreSQL, and the reverse.
//!
//! Deliberately absent: rows about live processes. Leases are restored as expired with raised fences, because nodes refuse
//! envelopes with a lower fence than they have seen, and they may have seen higher ones since the dump. A dump also brings
//! back credentials that were revoked after it was made. Its rows do not say which, so the engine revokes all of them.

use std::{
    collections::BTreeMap,
    io::{BufRead, Write},
    sync::Arc,
};

use gpuaas_model::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    database::{self, Row},
    error::StoreError,
    migrate,
    options::StoreOptions,
    query::{Value, text},
    store::{Store, Tx, prepare},
};

/// Every dumped table, ordered so that each refers only to earlier ones.
pub(crate) const TABLES: [&str; 27] = [
    "settings",
    "authorities",
    "signing_keys",
    "projects",
    "service_accounts",
    "tokens",
    "nodes",
    "node_keys",
    "left_machines",
    "enrollments",
    "allocations",
    "artifacts",
    "workloads",
    "workload_reports",
    "members",
    "operations",
    "steps",
    "tasks",
    "secrets",
    "access_grants",
    "leases",
    "streams",
    "archives",
    "archive_ranges",
    "events",
    "audit",
    "audit_seals",
];
/// Tables that are not dumped: live replicas and sessions, browsers that are signed in, remembered answers, and the schema
/// version.
const NOT_DUMPED: [&str; 6] =
    ["replicas", "sessions", "browser_sessions", "sign_in_links", "idempotency", "schema_versions"];
/// Returns every table of the schema.
pub(crate) fn every_table() -> impl Iterator<Item = &'static str> {
    TABLES.into_iter().chain(NOT_DUMPED)
}

/// How far a restore raises numbers that only grow above their dumped values: fences, the version of the key set, a
/// node's epoch. Each change raises them by one.
const RAISED_BY: u64 = 1_000_000;
/// Setting that marks rows from a backup until credentials that must not come back have been ended.
pub const RESTORED: &str = "restore.unfinished";
/// Setting with the id of the restore that loaded the rows. After an interruption it shows whether they were committed.
pub const RESTORE_ID: &str = "restore.id";
/// Longest accepted line, in bytes. The largest record is a task with its envelope and evidence.
const LINE_BYTES_MAX: u64 = 16 * 1_024 * 1_024;

/// An error of a dump or a restore.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading or writing the file failed.
    #[error("the dump cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// The file is not a dump, or it is incomplete.
    #[error("line {line} of the dump is invalid: {why}")]
    Malformed {
        /// The line number, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
    /// The dump has another schema version than this version of the program.
    #[error("the dump has schema version {found}, but this program needs {known}")]
    Schema {
        /// The schema version of the dump.
        found: i64,
        /// The schema version of this version of the program.
        known: i64,
    },
    /// The store already has rows.
    #[error("the store is not empty: table {0} has rows")]
    NotEmpty(&'static str),
}

/// A line of a dump.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first line: the schema version.
    Schema(i64),
    /// The table and the columns of the rows that follow.
    Table { name: String, columns: Vec<String> },
    /// One row.
    Row(Vec<Cell>),
    /// The last line: the number of rows.
    End { rows: u64 },
}

/// A value. The parser tries one variant after the other, so the most frequent ones come first.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Cell {
    Text(String),
    Int(i64),
    Null,
    Blob { hex: String },
}

impl Store {
    /// Writes all rows from one consistent snapshot. Returns their number.
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

    /// Restores a dump into a store without rows and sets [`RESTORED`]: all or nothing. Returns the number of rows.
    pub async fn restore(&self, from: &mut (dyn BufRead + Send)) -> Result<u64, DumpError> {
        let mut tx = self.begin().await?;
        let rows = load(&mut tx, from).await?;
        tx.begin_next_generation().await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Loads a dump unchanged into a database without rows, and creates or migrates the schema in the same transaction:
    /// all or nothing. For moving a store to another database. Returns the number of rows.
    pub async fn fill(
        options: &StoreOptions,
        clock: Arc<dyn Clock>,
        from: &mut (dyn BufRead + Send),
    ) -> Result<u64, DumpError> {
        let (store, _) = Self::connect(options, clock)?;
        let filled = async {
            let mut tx = store.begin().await?;
            prepare(tx.connection()?, store.dialect).await?;
            let rows = load(&mut tx, from).await?;
            tx.commit().await?;
            Ok(rows)
        };
        let filled = filled.await;
        store.close().await;
        filled
    }

    /// Returns the schema version of this version's stores and dumps.
    pub const fn newest_schema() -> i64 {
        migrate::NEWEST
    }

    /// Returns every table of a new store and whether it is dumped, for the test that compares them with the schema.
    pub fn dumped_tables() -> impl Iterator<Item = (&'static str, bool)> {
        TABLES.into_iter().map(|table| (table, true)).chain(NOT_DUMPED.into_iter().map(|table| (table, false)))
    }
}

/// Returns a number that only grows as it has to be after a restore at `now`: higher than any value that it can have
/// reached since the dump. A second restore of the same dump yields a higher number than the first, because the number
/// is at least the time in seconds and no number grows by one per second.
pub fn raised_number(known: u64, now: Timestamp) -> u64 {
    let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
    known.saturating_add(RAISED_BY).max(seconds)
}

/// Expires every lease and raises its fence above any value that it can have had.
pub(crate) async fn raise_fences(tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
    let least = raised_number(0, now);
    let sql = format!(
        "update leases set expires_at = 0, fence = case when fence + {RAISED_BY} > {least} then fence + {RAISED_BY} else {least} end"
    );
    tx.execute(sql, Vec::new()).await?;
    Ok(())
}

/// Inserts the rows of a dump into empty tables. Returns their number.
async fn load(tx: &mut Tx, from: &mut (dyn BufRead + Send)) -> Result<u64, DumpError> {
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
            Line::Table { name, columns } if number > 1 => {
                let types = types(tx, &name).await?;
                let columns = Columns::of(&name, columns, &types).map_err(malformed)?;
                table = Some((name, columns));
            }
            Line::Row(cells) => {
                let into = table.as_ref().ok_or_else(|| malformed("a row comes before its table".to_owned()))?;
                let (sql, values) = insertion(&into.0, &into.1, cells).map_err(malformed)?;
                tx.execute(sql, values).await.map_err(|error| match error {
                    // The row violates a rule of its table: a duplicate name, a missing value, or a missing referenced
                    // row.
                    StoreError::Database(why) => malformed(why),
                    error => error.into(),
                })?;
                rows += 1;
            }
            Line::End { rows: stated } if stated == rows => return Ok(rows),
            Line::Schema(_) | Line::Table { .. } | Line::End { .. } => {
                return Err(malformed("the line is out of order, or the number of rows is wrong".to_owned()));
            }
        }
    }
}

/// Returns the columns of a table with their types, as the database names them.
async fn types(tx: &mut Tx, table: &str) -> Result<BTreeMap<String, String>, StoreError> {
    let sql = tx.dialect.columns();
    let rows = tx.connection()?.rows(sql, vec![text(table)], usize::MAX).await?;
    rows.iter().map(|row| Ok((row.text("name")?.to_owned(), row.text("type")?.to_owned()))).collect()
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
        return Err(malformed("the line is incomplete".to_owned()));
    }
    // The parser's message quotes the line.
    serde_json::from_slice(&line).map_err(|_| malformed("it is no line of a dump".to_owned()))
}

/// Writes a row; before the first row of a table, also its name and columns.
fn write_row(into: &mut (dyn Write + Send), table: &str, row: Row, begun: &mut bool) -> Result<(), DumpError> {
    if !*begun {
        write(into, &Line::Table { name: table.to_owned(), columns: row.columns().to_vec() })?;
        *begun = true;
    }
    write(into, &Line::Row(row.into_cells()?.into_iter().map(cell).collect()))
}

fn cell(cell: database::Cell) -> Cell {
    match cell {
        database::Cell::Null => Cell::Null,
        database::Cell::Int(int) => Cell::Int(int),
        database::Cell::Text(text) => Cell::Text(text),
        database::Cell::Blob(blob) => Cell::Blob { hex: hex::encode(blob) },
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    Blob,
}

/// The columns of a table in the order of the dump.
struct Columns(Vec<(String, Kind)>);

impl Columns {
    fn of(table: &str, names: Vec<String>, types: &BTreeMap<String, String>) -> Result<Self, String> {
        if !TABLES.contains(&table) {
            return Err(format!("table {table} is unknown"));
        }
        let kind = |name: String| {
            let kind = match types.get(&name).map(String::as_str) {
                Some("bigint") => Kind::Int,
                Some("text") => Kind::Text,
                Some("blob" | "bytea") => Kind::Blob,
                _ => return Err(format!("table {table} has no column {name:?}")),
            };
            Ok((name, kind))
        };
        names.into_iter().map(kind).collect::<Result<_, _>>().map(Self)
    }
}

/// Converts a cell to a value of the column's type; `None` for a null. Checked here because SQLite would accept a value
/// of another type, and PostgreSQL rejects text with a NUL character.
fn value(cell: Cell, kind: Kind) -> Result<Option<Value>, String> {
    Ok(Some(match (cell, kind) {
        (Cell::Null, _) => return Ok(None),
        (Cell::Int(int), Kind::Int) => Value::Int(int),
        (Cell::Text(text), Kind::Text) if !text.contains('\0') => Value::Text(text),
        (Cell::Blob { hex }, Kind::Blob) => {
            Value::Blob(hex::decode(hex).map_err(|_| "the bytes are not valid hex".to_owned())?)
        }
        (Cell::Int(_) | Cell::Text(_) | Cell::Blob { .. }, _) => {
            return Err(format!("a value does not have its column's type, {kind:?}"));
        }
    }))
}

/// Returns the statement that inserts a row, with its values, or the reason why the row is invalid. Null columns are
/// left out, so that no null needs a type.
fn insertion(table: &str, columns: &Columns, cells: Vec<Cell>) -> Result<(String, Vec<Value>), String> {
    if cells.len() != columns.0.len() {
        return Err("the row has more or fewer values than its table has columns".to_owned());
    }
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for ((name, kind), cell) in columns.0.iter().zip(cells) {
        if let Some(value) = value(cell, *kind)? {
            names.push(name.as_str());
            values.push(value);
        }
    }
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    Ok((format!("insert into {table} ({}) values ({})", names.join(", "), places.join(", ")), values))
}
