//! Values that statements take and rows that they yield, independent of the database.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::de::DeserializeOwned;

use crate::error::StoreError;

/// A bound value. An absent text is stored as an empty one, so that no statement needs a type for a null.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Blob(Vec<u8>),
}

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// The column names of a statement's rows, with the statement, from which errors take the table.
#[derive(Debug)]
pub(crate) struct Columns {
    sql: Cow<'static, str>,
    names: Vec<String>,
}

impl Columns {
    /// Returns the columns with these names that the statement yields.
    pub(crate) fn of(sql: Cow<'static, str>, names: Vec<String>) -> Self {
        Self { sql, names }
    }

    fn table(&self) -> &str {
        table_of(&self.sql)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// A cell, or the reason why its value has no type that a column can have.
pub(crate) type ReadCell = Result<Cell, String>;

/// A row with all its cells.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Arc<Columns>,
    cells: Vec<ReadCell>,
}

impl Row {
    /// Returns a row with one cell per column.
    pub(crate) fn new(columns: Arc<Columns>, cells: Vec<ReadCell>) -> Self {
        Self { columns, cells }
    }

    /// Returns the column names in order.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns.names
    }

    /// Returns the cells in the order of the columns.
    pub(crate) fn into_cells(self) -> Result<Vec<Cell>, StoreError> {
        let unreadable =
            self.cells.iter().zip(self.columns()).find_map(|(cell, column)| Some((column, cell.as_ref().err()?)));
        match unreadable {
            Some((column, why)) => Err(self.corrupt(column, why)),
            None => Ok(self.cells.into_iter().flatten().collect()),
        }
    }

    /// Returns the error for an unreadable column of this row.
    pub(crate) fn corrupt(&self, column: &str, why: impl fmt::Display) -> StoreError {
        StoreError::corrupt(self.columns.table(), self.key(), column, why)
    }

    /// Returns the table and the key for messages.
    pub(crate) fn place(&self) -> String {
        format!("table {}, row {}", self.columns.table(), self.key())
    }

    /// Returns the key of the row, as far as the statement yields its columns.
    pub(crate) fn key(&self) -> String {
        let of_table =
            if self.columns().iter().any(|name| name == "id") { &["id"] } else { key_columns(self.columns.table()) };
        let parts = of_table.iter().map(|column| match self.cell(column) {
            Ok(Cell::Text(text)) => text.clone(),
            Ok(Cell::Int(int)) => int.to_string(),
            Ok(Cell::Null | Cell::Blob(_)) => "?".to_owned(),
            Err(_) => "*".to_owned(),
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// Returns the cell of a column.
    pub(crate) fn cell(&self, column: &str) -> Result<&Cell, StoreError> {
        let at = self.columns().iter().position(|name| name == column);
        let Some(cell) = at.and_then(|at| self.cells.get(at)) else {
            return Err(StoreError::corrupt(self.columns.table(), "*", column, "the column does not exist"));
        };
        cell.as_ref().map_err(|why| self.corrupt(column, why))
    }

    /// Parses the record that a column holds as JSON.
    pub(crate) fn record<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        serde_json::from_str(self.text(column)?).map_err(|error| self.corrupt(column, error))
    }

    /// Like [`Row::record`], for a statement that yields rows of several tables: `table` is named in errors.
    pub(crate) fn record_of<T: DeserializeOwned>(&self, table: &str, column: &str) -> Result<T, StoreError> {
        let why = |error| StoreError::corrupt(table, self.key(), column, error);
        serde_json::from_str(self.text(column)?).map_err(why)
    }

    /// Returns the text in a column.
    pub(crate) fn text(&self, column: &str) -> Result<&str, StoreError> {
        match self.cell(column)? {
            Cell::Text(text) => Ok(text),
            other => Err(self.type_mismatch(other, "text", column)),
        }
    }

    /// Returns the number in a column.
    pub(crate) fn int(&self, column: &str) -> Result<i64, StoreError> {
        match self.cell(column)? {
            Cell::Int(int) => Ok(*int),
            other => Err(self.type_mismatch(other, "a number", column)),
        }
    }

    /// Returns the bytes in a column.
    pub(crate) fn blob(&self, column: &str) -> Result<&[u8], StoreError> {
        match self.cell(column)? {
            Cell::Blob(blob) => Ok(blob),
            other => Err(self.type_mismatch(other, "bytes", column)),
        }
    }

    fn type_mismatch(&self, found: &Cell, wanted: &str, column: &str) -> StoreError {
        let found = match found {
            Cell::Null => "null",
            Cell::Int(_) => "a number",
            Cell::Text(_) => "text",
            Cell::Blob(_) => "bytes",
        };
        self.corrupt(column, format_args!("found {found}, expected {wanted}"))
    }
}

/// Returns the table that a statement of this crate reads from or inserts into.
fn table_of(sql: &str) -> &str {
    let after = |at: Option<usize>, keyword: &str| at.map(|at| &sql[at + keyword.len()..]);
    let (from, into) = (" from ", "insert into ");
    let rest = match sql.starts_with("select") {
        true => after(sql.find(from), from),
        // If a statement inserts into two tables, the first is the table of counters.
        false => after(sql.rfind(into), into),
    };
    rest.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()).unwrap_or("*")
}

/// Returns the key columns of a table.
fn key_columns(table: &str) -> &'static [&'static str] {
    match table {
        "settings" | "leases" => &["name"],
        "streams" => &["stream"],
        "events" => &["stream", "sequence"],
        "audit" => &["sequence"],
        "audit_seals" => &["number"],
        "sessions" => &["node_id"],
        "node_keys" => &["sha256"],
        "workload_reports" => &["workload_id"],
        "left_machines" => &["machine_id", "node_id"],
        "idempotency" => &["token_id", "key"],
        "signing_keys" => &["key_id"],
        "schema_versions" => &["version"],
        _ => &["id"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sql: &str, columns: &[&str], cells: Vec<ReadCell>) -> Row {
        let names = columns.iter().map(|&name| name.to_owned()).collect();
        Row::new(Arc::new(Columns::of(Cow::Owned(sql.to_owned()), names)), cells)
    }

    fn text(text: &str) -> ReadCell {
        Ok(Cell::Text(text.to_owned()))
    }

    #[test]
    fn statement_table_is_the_one_read_or_inserted_into() {
        for (sql, table) in [
            ("select id, doc from nodes where id = $1", "nodes"),
            ("select count(*) as n from operations", "operations"),
            ("insert into streams (stream) values ($1) returning last_sequence", "streams"),
            (
                "with counted as (insert into streams (a) values (1)) insert into events (b) select 1 from counted",
                "events",
            ),
            ("select current_timestamp", "*"),
        ] {
            assert_eq!(table_of(sql), table, "{sql}");
        }
    }

    #[test]
    fn row_that_cannot_be_read_is_named_by_table_key_and_column() {
        let message = |error: StoreError| match error {
            StoreError::Corrupt(bad) => bad.to_string(),
            other => panic!("{other:?}"),
        };
        let node = row("select id, doc from nodes", &["id", "doc"], vec![text("n-1"), text("{")]);
        assert!(
            message(node.record::<serde_json::Value>("doc").unwrap_err())
                .starts_with("table nodes, row n-1, column doc: EOF")
        );
        let event = vec![text("platform"), Ok(Cell::Int(7)), Err("the text is not UTF-8".to_owned())];
        let event = row("select * from events", &["stream", "sequence", "data"], event);
        assert_eq!(
            message(event.text("data").unwrap_err()),
            "table events, row platform/7, column data: the text is not UTF-8"
        );
        assert_eq!(
            message(event.int("stream").unwrap_err()),
            "table events, row platform/7, column stream: found text, expected a number"
        );
        assert!(message(event.into_cells().unwrap_err()).contains("column data"));
        let counted = row("select count(*) as n from nodes", &["n"], vec![Ok(Cell::Null)]);
        assert!(message(counted.int("n").unwrap_err()).starts_with("table nodes, row *, column n"));
    }
}
