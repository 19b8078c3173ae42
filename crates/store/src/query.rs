//! Statements with their values. Every table's code goes through here, so that binding and reading are written once.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

pub(crate) use crate::database::{Row, Value};
use crate::{error::StoreError, store::Reader};

/// A text value of anything printable.
pub(crate) fn text(value: impl std::fmt::Display) -> Value {
    Value::Text(value.to_string())
}

/// A text value; empty when absent.
pub(crate) fn text_or_empty(value: Option<impl std::fmt::Display>) -> Value {
    Value::Text(value.map(|value| value.to_string()).unwrap_or_default())
}

/// An integer value; counters never reach the last bit.
pub(crate) fn int(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A list of texts, for [`Reader::rows_with_lists`].
pub(crate) fn list_of(items: impl IntoIterator<Item = impl std::fmt::Display>) -> Value {
    let items = items.into_iter().map(|item| serde_json::Value::String(item.to_string()));
    Value::Text(serde_json::Value::Array(items.collect()).to_string())
}

/// A record as JSON.
pub(crate) fn document(record: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_string(record).map(Value::Text).map_err(StoreError::unwritable)
}

impl Reader {
    /// Runs a statement and returns how many rows it changed. One that is put together is made of this crate's own names.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        let ran = self.connection()?.execute(sql, values).await;
        self.noted(ran)
    }

    /// All rows of a statement.
    pub(crate) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.read(sql.into(), values, usize::MAX).await
    }

    /// All rows of a statement with lists among its values: `json_each($1)` is a table with the items of the first one in its column `value`.
    pub(crate) async fn rows_with_lists(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        self.read(self.dialect.with_lists(sql), values, usize::MAX).await
    }

    /// The first row of a statement.
    pub(crate) async fn row(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql.into(), values, 1).await?.pop())
    }

    /// The record in the first row's `doc`. The statement yields the row's key too, by which one that cannot be read is named.
    pub(crate) async fn find<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>, StoreError> {
        self.row(sql, values).await?.map(|row| row.record("doc")).transpose()
    }

    /// The records in every row's `doc`, of a statement that yields the rows' keys too.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows(sql, values).await?.iter().map(|row| row.record("doc")).collect()
    }
}

/// A text column.
pub(crate) fn get_text(row: &Row, column: &'static str) -> Result<String, StoreError> {
    Ok(row.text(column)?.to_owned())
}

/// An integer column.
pub(crate) fn get_int(row: &Row, column: &'static str) -> Result<i64, StoreError> {
    row.int(column)
}

/// An integer column that is never negative.
pub(crate) fn get_count(row: &Row, column: &'static str) -> Result<u64, StoreError> {
    u64::try_from(get_int(row, column)?).map_err(|_| row.corrupt(column, "it is negative"))
}

/// A column of bytes.
pub(crate) fn get_blob(row: &Row, column: &'static str) -> Result<Vec<u8>, StoreError> {
    Ok(row.blob(column)?.to_vec())
}

/// A text column as what it stands for.
pub(crate) fn get_parsed<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    let text = row.text(column)?;
    text.parse().map_err(|_| row.corrupt(column, format_args!("it holds {text:?}")))
}

/// The same, absent when empty.
pub(crate) fn get_optional<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<Option<T>, StoreError> {
    if row.text(column)?.is_empty() { Ok(None) } else { get_parsed(row, column).map(Some) }
}
