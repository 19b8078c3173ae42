//! Values of statements and columns of rows. The code of every table uses these functions to bind and to read them.

use serde::Serialize;

pub(crate) use crate::database::{Row, Value};
use crate::error::StoreError;

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

/// Returns a list of texts, for [`crate::Reader::rows_with_lists`].
pub(crate) fn list_of(items: impl IntoIterator<Item = impl std::fmt::Display>) -> Value {
    let items = items.into_iter().map(|item| serde_json::Value::String(item.to_string()));
    Value::Text(serde_json::Value::Array(items.collect()).to_string())
}

/// Returns a record as JSON.
pub(crate) fn document(record: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_string(record).map(Value::Text).map_err(StoreError::not_serializable)
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
