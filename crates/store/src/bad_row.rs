//! A row that cannot be read, and where it is.

use std::fmt;

/// Where a row cannot be read, and why. [`StoreError::corrupt`](crate::StoreError::corrupt) is the only way to make one, so that every such error names
/// its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    table: String,
    row: String,
    column: String,
    why: String,
}

impl BadRow {
    pub(crate) fn new(
        table: impl Into<String>,
        row: impl fmt::Display,
        column: impl Into<String>,
        why: impl fmt::Display,
    ) -> Self {
        Self { table: table.into(), row: row.to_string(), column: column.into(), why: why.to_string() }
    }

    /// The table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The row's key: its id, or its key columns with a `/` between them; `*` for a statement over many rows.
    pub fn row(&self) -> &str {
        &self.row
    }

    /// The column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// What is wrong.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, row, column, why } = self;
        write!(f, "table {table}, row {row}, column {column}: {why}")
    }
}
