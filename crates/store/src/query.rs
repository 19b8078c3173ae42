//! Statements with their values. Every table's code goes through here, so that binding and reading are written once.

use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Any, Row, any::AnyRow};

use crate::{error::StoreError, store::Reader};

/// A bound value. Absent texts are stored empty, so that no statement needs to know the type of a null.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Blob(Vec<u8>),
}

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

/// A record as JSON.
pub(crate) fn document(record: &impl Serialize) -> Result<Value, StoreError> {
    Ok(Value::Text(serde_json::to_string(record)?))
}

type Query = sqlx::query::Query<'static, Any, sqlx::any::AnyArguments>;

fn query(sql: &'static str, values: Vec<Value>) -> Query {
    bound(sqlx::query(sql), values)
}

fn bound(mut query: Query, values: Vec<Value>) -> Query {
    for value in values {
        query = match value {
            Value::Text(text) => query.bind(text),
            Value::Int(int) => query.bind(int),
            Value::Blob(blob) => query.bind(blob),
        };
    }
    query
}

impl Reader {
    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(&mut self, sql: &'static str, values: Vec<Value>) -> Result<u64, StoreError> {
        let ran = self.simulated.answer(query(sql, values).execute(&mut *self.transaction)).await;
        Ok(self.noted(ran)?.rows_affected())
    }

    /// The same for a statement that is put together from this crate's own names.
    pub(crate) async fn execute_written(&mut self, sql: String, values: Vec<Value>) -> Result<u64, StoreError> {
        let bound = bound(sqlx::query(sqlx::AssertSqlSafe(sql)), values);
        let ran = self.simulated.answer(bound.execute(&mut *self.transaction)).await;
        Ok(self.noted(ran)?.rows_affected())
    }

    /// All rows of a statement.
    pub(crate) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<AnyRow>, StoreError> {
        let ran = self.simulated.answer(query(sql, values).fetch_all(&mut *self.transaction)).await;
        self.noted(ran)
    }

    /// The first row of a statement.
    pub(crate) async fn row(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Option<AnyRow>, StoreError> {
        let ran = self.simulated.answer(query(sql, values).fetch_optional(&mut *self.transaction)).await;
        self.noted(ran)
    }

    /// Notes a failed statement: its transaction must not commit what the other statements did.
    fn noted<T>(&mut self, ran: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        let ran = ran.map_err(StoreError::from);
        self.failed |= ran.is_err();
        if let Err(error) = &ran {
            self.room.take_note(error);
        }
        ran
    }

    /// The record in the first row's `doc`.
    pub(crate) async fn find<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>, StoreError> {
        self.row(sql, values).await?.map(|row| parsed(&row)).transpose()
    }

    /// The records in every row's `doc`.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows(sql, values).await?.iter().map(parsed).collect()
    }
}

fn parsed<T: DeserializeOwned>(row: &AnyRow) -> Result<T, StoreError> {
    Ok(serde_json::from_str(&get_text(row, "doc")?)?)
}

/// A text column.
pub(crate) fn get_text(row: &AnyRow, column: &'static str) -> Result<String, StoreError> {
    Ok(row.try_get::<String, _>(column)?)
}

/// An integer column.
pub(crate) fn get_int(row: &AnyRow, column: &'static str) -> Result<i64, StoreError> {
    Ok(row.try_get::<i64, _>(column)?)
}

/// An integer column that is never negative.
pub(crate) fn get_count(row: &AnyRow, column: &'static str) -> Result<u64, StoreError> {
    u64::try_from(get_int(row, column)?).map_err(|_| StoreError::Corrupt(format!("{column} is negative")))
}

/// A column of bytes.
pub(crate) fn get_blob(row: &AnyRow, column: &'static str) -> Result<Vec<u8>, StoreError> {
    Ok(row.try_get::<Vec<u8>, _>(column)?)
}

/// A text column as what it stands for.
pub(crate) fn get_parsed<T: std::str::FromStr>(row: &AnyRow, column: &'static str) -> Result<T, StoreError> {
    let text = get_text(row, column)?;
    text.parse().map_err(|_| StoreError::Corrupt(format!("{column} holds {text:?}")))
}

/// The same, absent when empty.
pub(crate) fn get_optional<T: std::str::FromStr>(row: &AnyRow, column: &'static str) -> Result<Option<T>, StoreError> {
    if get_text(row, column)?.is_empty() { Ok(None) } else { get_parsed(row, column).map(Some) }
}
