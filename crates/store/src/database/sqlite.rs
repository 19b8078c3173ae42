//! SQLite.

use std::{sync::Arc, time::Duration};

use rusqlite::{
    CachedStatement, OpenFlags, ToSql,
    types::{ToSqlOutput, ValueRef},
};

use super::{Cell, Row, Value};
use crate::{
    dialect::{Dialect, LOCK_WAIT_MAX},
    error::StoreError,
};

/// Statements that stay prepared: more than there are in this crate.
const STATEMENTS_KEPT: usize = 512;

/// Absent once a wait for another process was given up half-way.
pub(crate) struct Sqlite(Option<rusqlite::Connection>);

impl Sqlite {
    pub(super) fn open(url: &str, setup: &str) -> Result<Self, StoreError> {
        let file = Dialect::Sqlite
            .file(url)
            .ok_or_else(|| StoreError::Database("the address of an SQLite database names its file".to_owned()))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(file, flags)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        connection.execute_batch(setup)?;
        Ok(Self(Some(connection)))
    }

    pub(super) fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        Ok(self.connection()?.execute_batch(sql)?)
    }

    /// Begins a transaction, or is told at once that another process writes.
    pub(super) fn begin(&mut self, sql: &str) -> Result<(), StoreError> {
        let connection = self.connection()?;
        connection.busy_timeout(Duration::ZERO)?;
        let begun = connection.execute_batch(sql);
        connection.busy_timeout(LOCK_WAIT_MAX)?;
        Ok(begun?)
    }

    /// Begins a transaction when the other process has written, on a thread that may block.
    pub(super) async fn begin_waiting(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let lost = || StoreError::Unreachable("the wait for another process was given up".to_owned());
        let connection = self.0.take().ok_or_else(lost)?;
        let waited = tokio::task::spawn_blocking(move || {
            let begun = connection.execute_batch(sql);
            (connection, begun)
        });
        let (connection, begun) = waited.await.map_err(|_| lost())?;
        self.0 = Some(connection);
        Ok(begun?)
    }

    pub(super) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.connection()?.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    pub(super) fn each_row(
        &mut self,
        sql: &str,
        values: &[Value],
        mut take: impl FnMut(Row) -> bool,
    ) -> Result<(), StoreError> {
        let mut statement = self.connection()?.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let cells = (0..columns.len()).map(|at| cell(row.get_ref(at)?, &columns[at]));
            if !take(Row::new(columns.clone(), cells.collect::<Result<_, StoreError>>()?)) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.0.as_ref().is_some_and(|connection| !connection.is_autocommit())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.0.is_none()
    }

    fn connection(&self) -> Result<&rusqlite::Connection, StoreError> {
        self.0.as_ref().ok_or_else(|| StoreError::Unreachable("the connection was given up".to_owned()))
    }
}

/// Binds by the numbers in the parameters' names, `$1` the first value: SQLite itself numbers them in the order in which they occur.
fn bind(statement: &mut CachedStatement<'_>, values: &[Value]) -> Result<(), StoreError> {
    for at in 1..=statement.parameter_count() {
        let number = statement.parameter_name(at).and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let value = number.and_then(|number| values.get(number.checked_sub(1)?));
        let value = value.ok_or_else(|| StoreError::Database(format!("parameter {at} of a statement has no value")))?;
        statement.raw_bind_parameter(at, value)?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Int(int) => ValueRef::Integer(*int),
            Self::Blob(blob) => ValueRef::Blob(blob),
        }))
    }
}

fn cell(value: ValueRef<'_>, column: &str) -> Result<Cell, StoreError> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(int) => Cell::Int(int),
        ValueRef::Text(text) => Cell::Text(
            String::from_utf8(text.to_vec())
                .map_err(|_| StoreError::Corrupt(format!("{column} holds a text that is not UTF-8")))?,
        ),
        ValueRef::Blob(blob) => Cell::Blob(blob.to_vec()),
        ValueRef::Real(_) => return Err(StoreError::Corrupt(format!("{column} holds a fraction"))),
    })
}
