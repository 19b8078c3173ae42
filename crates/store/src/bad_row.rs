//! The location of an unreadable row.

use std::fmt;

/// The location of an unreadable row and the reason. Only [`StoreError::corrupt`](crate::StoreError::corrupt) creates
/// one, so every such error names the location.
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

    /// Returns the name of the table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the key of the row: its id, or its key columns joined by `/`; `*` for a statement over many rows.
    pub fn row(&self) -> &str {
        &self.row
    }

    /// Returns the name of the column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Returns what is wrong with the value.
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
