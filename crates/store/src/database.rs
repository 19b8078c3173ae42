//! One connection to the database: statements with their values, and the rows that they yield.
//!
//! A statement on SQLite runs where it is asked for and is over when it returns: it takes microseconds, and a hop to another thread would take longer.
//! So is the future of a statement small, and only that of a server's is boxed. What waits for the disk or for another process's lock is [`crate::writer`]'s, which does it where blocking is fine.

mod postgres;
mod row;
mod sqlite;

pub(crate) use row::{Cell, Row, Value};

use std::{borrow::Cow, path::Path};

use crate::{dialect::Dialect, error::StoreError, repeat::repeated};
use postgres::Postgres;
use sqlite::Sqlite;

/// A connection, set up as its dialect says.
pub(crate) enum Connection {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl Connection {
    /// Connects, and makes SQLite's file if it is not there.
    pub(crate) async fn open(dialect: Dialect, url: &str) -> Result<Self, StoreError> {
        let setup = dialect.connection_setup();
        Ok(match dialect {
            // Of several that make the file's first page at once SQLite refuses some without waiting: each would wait for the other.
            Dialect::Sqlite => Self::Sqlite(repeated(async || Sqlite::open(url, &setup)).await?),
            Dialect::Postgres => Self::Postgres(Box::new(Box::pin(Postgres::open(url, setup)).await?)),
        })
    }

    /// Opens SQLite's file, which must be there, and never changes it.
    pub(crate) fn open_file_to_read(file: &Path) -> Result<Self, StoreError> {
        Sqlite::open_to_read(file).map(Self::Sqlite)
    }

    /// Runs statements that take no values and yield nothing.
    pub(crate) async fn run(&mut self, sql: impl Into<Cow<'static, str>> + Send) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.run(&sql.into()),
            Self::Postgres(connection) => Box::pin(connection.run(sql.into())).await,
        }
    }

    /// Begins a transaction. Another process may hold SQLite's lock for long: that is waited for on a thread that may block. A connection that
    /// could not begin must not be used on.
    pub(crate) async fn begin(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => match connection.begin(sql) {
                Err(StoreError::Busy) => Box::pin(connection.begin_waiting(sql)).await,
                begun => begun,
            },
            Self::Postgres(connection) => Box::pin(connection.run(sql.into())).await,
        }
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(connection) => connection.execute(&sql.into(), &values),
            Self::Postgres(connection) => Box::pin(connection.execute(sql.into(), values)).await,
        }
    }

    /// The rows of a statement, at most `most` of them.
    pub(crate) async fn rows(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        self.each_row(sql, values, |row| {
            rows.push(row);
            rows.len() < most
        })
        .await?;
        Ok(rows)
    }

    /// Gives the rows of a statement to `take`, one by one, as long as it returns true.
    pub(crate) async fn each_row(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
        take: impl FnMut(Row) -> bool + Send,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.each_row(&sql.into(), &values, take),
            Self::Postgres(connection) => Box::pin(connection.each_row(sql.into(), values, take)).await,
        }
    }

    /// How many rows SQLite has changed over this connection; a server says by itself whether a transaction has changed any.
    pub(crate) fn changed_rows(&self) -> u64 {
        match self {
            Self::Sqlite(connection) => connection.changed_rows(),
            Self::Postgres(_) => 0,
        }
    }

    /// Whether it can be used on.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Sqlite(connection) => !connection.is_lost(),
            Self::Postgres(connection) => !connection.is_lost(),
        }
    }

    /// Whether a transaction is open. SQLite ends one by itself for want of room or memory; a server's is gone with its connection.
    pub(crate) fn is_in_transaction(&self) -> bool {
        match self {
            Self::Sqlite(connection) => connection.is_in_transaction(),
            Self::Postgres(connection) => !connection.is_lost(),
        }
    }
}
