//! A connection to the database, which runs statements with values and yields rows.
//!
//! Statements on SQLite run on the calling thread and are finished when they return: they take microseconds, less than
//! a switch to another thread. Their futures are therefore small, and only those for PostgreSQL are boxed. Waiting for
//! the disk or for another process's lock is up to [`crate::writer`], which does it where blocking is allowed.

mod postgres;
mod row;
mod sqlite;

pub(crate) use row::{Cell, Row, Value};

use std::{borrow::Cow, path::Path, time::Duration};

use crate::{dialect::Dialect, error::StoreError, retry::with_retries};
use postgres::Postgres;
use sqlite::Sqlite;

/// How long a change waits for its turn, or a reader for a connection, within this process.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// A connection, set up for its dialect.
pub(crate) enum Connection {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl Connection {
    /// Connects, and creates the SQLite file if it does not exist.
    pub(crate) async fn open(dialect: Dialect, url: &str) -> Result<Self, StoreError> {
        let setup = dialect.connection_setup();
        Ok(match dialect {
            // If several connections create the first page at once, SQLite refuses some at once, because they would
            // wait for each other.
            Dialect::Sqlite => Self::Sqlite(with_retries(async || Sqlite::open(url, &setup)).await?),
            Dialect::Postgres => Self::Postgres(Box::new(Box::pin(Postgres::open(url, setup)).await?)),
        })
    }

    /// Opens an existing SQLite file without ever changing it.
    pub(crate) fn open_file_to_read(file: &Path) -> Result<Self, StoreError> {
        Sqlite::open_to_read(file).map(Self::Sqlite)
    }

    /// Runs statements without values and without rows.
    pub(crate) async fn run(&mut self, sql: impl Into<Cow<'static, str>> + Send) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.run(&sql.into()),
            Self::Postgres(connection) => Box::pin(connection.run(sql.into())).await,
        }
    }

    /// Runs statements that begin and end transactions and savepoints, separated by `; `. SQLite keeps them prepared.
    pub(crate) async fn run_kept(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.run_kept(sql),
            Self::Postgres(connection) => Box::pin(connection.run(sql.into())).await,
        }
    }

    /// Begins a transaction. If another process holds SQLite's lock, waits for it on a thread that may block. After a
    /// failure the connection must not be used again.
    pub(crate) async fn begin(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => match connection.begin(sql) {
                Err(StoreError::Busy) => Box::pin(connection.begin_waiting(sql)).await,
                begun => begun,
            },
            Self::Postgres(connection) => Box::pin(connection.run(sql.into())).await,
        }
    }

    /// Runs a statement and returns the number of rows that it changed.
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

    /// Returns the rows of a statement, at most `most` of them.
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

    /// Passes the rows of a statement to `take` one by one, until it returns false.
    pub(crate) async fn each_row(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
        take: impl FnMut(Row) -> bool + Send,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => connection.each_row(sql.into(), &values, take),
            Self::Postgres(connection) => Box::pin(connection.each_row(sql.into(), values, take)).await,
        }
    }

    /// Returns how many rows were changed over this connection on SQLite; 0 on PostgreSQL, which can report by itself
    /// whether a transaction changed rows.
    pub(crate) fn changed_rows(&self) -> u64 {
        match self {
            Self::Sqlite(connection) => connection.changed_rows(),
            Self::Postgres(_) => 0,
        }
    }

    /// Returns whether the connection can still be used.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Sqlite(connection) => !connection.is_lost(),
            Self::Postgres(connection) => !connection.is_lost(),
        }
    }

    /// Returns whether a transaction is open. SQLite may end one by itself when the disk or memory is full; on
    /// PostgreSQL it ends with the connection.
    pub(crate) fn is_in_transaction(&self) -> bool {
        match self {
            Self::Sqlite(connection) => connection.is_in_transaction(),
            Self::Postgres(connection) => !connection.is_lost(),
        }
    }
}
