//! What statements take and yield, whichever database it is.

use std::sync::Arc;

use crate::error::StoreError;

/// A bound value. Absent texts are stored empty, so that no statement needs to know the type of a null.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Blob(Vec<u8>),
}

/// What a row has in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row, read whole.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Arc<[String]>,
    cells: Vec<Cell>,
}

impl Row {
    /// A row with a cell for each column.
    pub(crate) fn new(columns: Arc<[String]>, cells: Vec<Cell>) -> Self {
        Self { columns, cells }
    }

    /// The names of its columns, in their order.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Its cells, in the order of the columns.
    pub(crate) fn into_cells(self) -> Vec<Cell> {
        self.cells
    }

    /// The cell of a column.
    pub(crate) fn cell(&self, column: &str) -> Result<&Cell, StoreError> {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.cells.get(at)).ok_or_else(|| StoreError::Corrupt(format!("there is no column {column}")))
    }

    /// A text.
    pub(crate) fn text(&self, column: &str) -> Result<&str, StoreError> {
        match self.cell(column)? {
            Cell::Text(text) => Ok(text),
            other => Err(other.is_not("a text", column)),
        }
    }

    /// A number.
    pub(crate) fn int(&self, column: &str) -> Result<i64, StoreError> {
        match self.cell(column)? {
            Cell::Int(int) => Ok(*int),
            other => Err(other.is_not("a number", column)),
        }
    }

    /// Bytes.
    pub(crate) fn blob(&self, column: &str) -> Result<&[u8], StoreError> {
        match self.cell(column)? {
            Cell::Blob(blob) => Ok(blob),
            other => Err(other.is_not("bytes", column)),
        }
    }
}

impl Cell {
    fn is_not(&self, wanted: &str, column: &str) -> StoreError {
        let found = match self {
            Self::Null => "nothing",
            Self::Int(_) => "a number",
            Self::Text(_) => "a text",
            Self::Blob(_) => "bytes",
        };
        StoreError::Corrupt(format!("{column} holds {found} where {wanted} must be"))
    }
}
