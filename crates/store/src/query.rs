//! Statements with their values. The code of every table uses these functions to bind values and to read rows.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

pub(crate) use crate::database::{Row, Value};
use crate::{error::StoreError, store::Reader};

/// Returns a text value from anything printable.
pub(crate) fn text(value: impl std::fmt::Display) -> Value {
    Value::Text(value.to_string())
}

/// Returns a text value; empty if absent.
pub(crate) fn text_or_empty(value: Option<impl std::fmt::Display>) -> Value {
    Value::Text(value.map(|value| value.to_string()).unwrap_or_default())
}

/// Returns an integer value. Values above `i64::MAX` are clamped; no counter gets there.
pub(crate) fn int(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Returns a list of texts, for [`Reader::rows_with_lists`].
pub(crate) fn list_of(items: impl IntoIterator<Item = impl std::fmt::Display>) -> Value {
    let items = items.into_iter().map(|item| serde_json::Value::String(item.to_string()));
    Value::Text(serde_json::Value::Array(items.collect()).to_string())
}

/// Returns a record as JSON.
pub(crate) fn document(record: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_string(record).map(Value::Text).map_err(StoreError::not_serializable)
}

impl Reader {
    /// Runs a statement and returns the number of rows that it changed. A composed statement may contain only names
    /// that this crate defines.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        let ran = self.connection()?.execute(sql, values).await;
        self.record_outcome(ran)
    }

    /// Returns all rows of a statement.
    pub(crate) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.read(sql.into(), values, usize::MAX).await
    }

    /// Returns all rows of a statement with list values: `json_each($1)` is a table with the items of the first value
    /// in its column `value`.
    pub(crate) async fn rows_with_lists(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        self.read(self.dialect.with_lists(sql), values, usize::MAX).await
    }

    /// Returns the first row of a statement.
    pub(crate) async fn row(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql.into(), values, 1).await?.pop())
    }

    /// Returns the record in the first row's column `doc`. The statement has to yield the row's key too, for error
    /// messages.
    pub(crate) async fn find<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>, StoreError> {
        self.row(sql, values).await?.map(|row| row.record("doc")).transpose()
    }

    /// Returns the records in the column `doc` of all rows. The statement has to yield the rows' keys too.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows(sql, values).await?.iter().map(|row| row.record("doc")).collect()
    }
}

/// Returns a text column.
pub(crate) fn get_text(row: &Row, column: &'static str) -> Result<String, StoreError> {
    Ok(row.text(column)?.to_owned())
}

/// Returns an integer column.
pub(crate) fn get_int(row: &Row, column: &'static str) -> Result<i64, StoreError> {
    row.int(column)
}

/// Returns an integer column that must not be negative.
pub(crate) fn get_count(row: &Row, column: &'static str) -> Result<u64, StoreError> {
    u64::try_from(get_int(row, column)?).map_err(|_| row.corrupt(column, "the number is negative"))
}

/// Returns a column of bytes.
pub(crate) fn get_blob(row: &Row, column: &'static str) -> Result<Vec<u8>, StoreError> {
    Ok(row.blob(column)?.to_vec())
}

/// Parses a text column.
pub(crate) fn get_parsed<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    let text = row.text(column)?;
    text.parse().map_err(|_| row.corrupt(column, format_args!("{text:?} is invalid")))
}

/// Parses a text column; `None` if it is empty.
pub(crate) fn get_optional<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<Option<T>, StoreError> {
    if row.text(column)?.is_empty() { Ok(None) } else { get_parsed(row, column).map(Some) }
}
