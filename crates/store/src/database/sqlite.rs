//! Connections to SQLite.

use std::{
    borrow::Cow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::{
    CachedStatement, OpenFlags, ToSql,
    config::DbConfig,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    Cell, Row, Value,
    row::{Columns, ReadCell},
};
use crate::{
    dialect::{Dialect, LOCK_WAIT_MAX},
    error::StoreError,
};

/// Size of the cache of prepared statements: more than this crate has.
const STATEMENT_CACHE_SIZE: usize = 512;

pub(crate) struct Sqlite {
    /// Absent after a wait for another process was cancelled half-way.
    connection: Option<rusqlite::Connection>,
    /// The path of the database file, for errors.
    file: PathBuf,
}

impl Sqlite {
    pub(super) fn open(url: &str, setup: &str) -> Result<Self, StoreError> {
        let file = Dialect::Sqlite
            .file(url)
            .ok_or_else(|| StoreError::Database("the address of an SQLite database must name its file".to_owned()))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open_with_flags(&file, flags, setup).map_err(|error| StoreError::from_sqlite(&error, &file))
    }

    /// Opens an existing database without ever writing to it. If no process has it open, not even SQLite's side files
    /// are created.
    pub(super) fn open_to_read(file: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let side = |suffix: &str| {
            let mut path = file.as_os_str().to_owned();
            path.push(suffix);
            PathBuf::from(path)
        };
        // A non-empty write-ahead log has to be read too, and a process that has the database open keeps an index of
        // it.
        let has_log = side("-shm").exists() || std::fs::metadata(side("-wal")).is_ok_and(|log| log.len() > 0);
        let mut uri = url_of(file);
        if !has_log {
            uri.push_str("?immutable=1");
        }
        let opened = Self::open_with_flags(
            Path::new(&uri),
            flags,
            &format!("pragma busy_timeout = {}", LOCK_WAIT_MAX.as_millis()),
        );
        let opened = opened.map_err(|error| StoreError::from_sqlite(&error, file))?;
        Ok(Self { file: file.to_owned(), ..opened })
    }

    fn open_with_flags(file: &Path, flags: OpenFlags, setup: &str) -> rusqlite::Result<Self> {
        let connection = rusqlite::Connection::open_with_flags(file, flags)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        // A plan depends on no bound value. SQLite would otherwise prepare a cached statement again at every use if another plan could suit other
        // values.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.execute_batch(setup)?;
        Ok(Self { connection: Some(connection), file: file.to_owned() })
    }

    pub(super) fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let ran = self.connection()?.execute_batch(sql);
        self.add_file(ran)
    }

    /// Runs statements of transactions, separated by `; `, and keeps them prepared.
    pub(super) fn run_kept(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let ran = run_kept(self.connection()?, sql);
        self.add_file(ran)
    }

    /// Begins a transaction. Fails at once if another process holds the write lock.
    pub(super) fn begin(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let begun = connection.busy_timeout(Duration::ZERO).and_then(|()| run_kept(connection, sql));
        self.add_file(connection.busy_timeout(LOCK_WAIT_MAX).and(begun))
    }

    /// Begins a transaction after another process has released the write lock, on a thread that may block.
    pub(super) async fn begin_waiting(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let lost = || StoreError::Unreachable("the wait for the write lock was cancelled".to_owned());
        let connection = self.connection.take().ok_or_else(lost)?;
        let waited = tokio::task::spawn_blocking(move || {
            let begun = connection.execute_batch(sql);
            (connection, begun)
        });
        let (connection, begun) = waited.await.map_err(|_| lost())?;
        self.connection = Some(connection);
        self.add_file(begun)
    }

    pub(super) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.prepared(sql, values)?;
        let ran = statement.raw_execute();
        self.add_file(ran).map(|rows| rows as u64)
    }

    pub(super) fn each_row(
        &mut self,
        sql: Cow<'static, str>,
        values: &[Value],
        mut take: impl FnMut(Row) -> bool,
    ) -> Result<(), StoreError> {
        let mut statement = self.prepared(&sql, values)?;
        let columns = Arc::new(Columns::of(sql, statement.column_names().map(str::to_owned).collect()));
        let mut rows = statement.raw_query();
        while let Some(row) = self.add_file(rows.next())? {
            let cells = (0..columns.len()).map(|at| row.get_ref(at).map(cell)).collect::<rusqlite::Result<_>>();
            if !take(Row::new(columns.clone(), self.add_file(cells)?)) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn changed_rows(&self) -> u64 {
        self.connection.as_ref().map_or(0, rusqlite::Connection::total_changes)
    }

    /// Returns the prepared statement with its values bound.
    fn prepared(&self, sql: &str, values: &[Value]) -> Result<CachedStatement<'_>, StoreError> {
        let mut statement = self.add_file(self.connection()?.prepare_cached(sql))?;
        for (at, value) in bound(&statement, values)? {
            self.add_file(statement.raw_bind_parameter(at, value))?;
        }
        Ok(statement)
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_autocommit())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.connection.is_none()
    }

    fn connection(&self) -> Result<&rusqlite::Connection, StoreError> {
        self.connection.as_ref().ok_or_else(|| StoreError::Unreachable("the connection was lost".to_owned()))
    }

    /// Adds the database file to an error.
    fn add_file<T>(&self, ran: rusqlite::Result<T>) -> Result<T, StoreError> {
        ran.map_err(|error| StoreError::from_sqlite(&error, &self.file))
    }
}

fn run_kept(connection: &rusqlite::Connection, sql: &'static str) -> rusqlite::Result<()> {
    sql.split("; ").try_for_each(|sql| connection.prepare_cached(sql)?.raw_execute().map(drop))
}

/// Maps values to SQLite's parameter positions, which it numbers in order of occurrence. The parameter `$1` takes the
/// first value.
fn bound<'a>(statement: &CachedStatement<'_>, values: &'a [Value]) -> Result<Vec<(usize, &'a Value)>, StoreError> {
    let value = |at: usize| {
        let number = statement.parameter_name(at).and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let value = number.and_then(|number| values.get(number.checked_sub(1)?));
        let missing = || StoreError::Database(format!("parameter {at} of a statement has no value"));
        Ok((at, value.ok_or_else(missing)?))
    };
    (1..=statement.parameter_count()).map(value).collect()
}

/// Encodes a path as a URI for SQLite.
fn url_of(file: &Path) -> String {
    let mut url = "file:".to_owned();
    for &byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => url.push(char::from(byte)),
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
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

fn cell(value: ValueRef<'_>) -> ReadCell {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(int) => Cell::Int(int),
        ValueRef::Text(text) => {
            Cell::Text(String::from_utf8(text.to_vec()).map_err(|_| "the text is not UTF-8".to_owned())?)
        }
        ValueRef::Blob(blob) => Cell::Blob(blob.to_vec()),
        ValueRef::Real(_) => return Err("a floating-point number is not supported".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use gpuaas_test_support::DatabaseFile;
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn statement_is_prepared_once_for_all_values() {
        let database = DatabaseFile::new();
        let table = "create table steps (id text primary key, operation_id text not null, position bigint not null)";
        let mut sqlite = Sqlite::open(&database.url(), table).unwrap();
        let sql = "select id from steps where operation_id = $1 order by position";
        for operation in ["a", "b"] {
            sqlite.each_row(sql.into(), &[Value::Text(operation.to_owned())], |_| true).unwrap();
        }
        let again = sqlite.prepared(sql, &[Value::Text("c".to_owned())]).unwrap();
        assert_eq!(again.get_status(StatementStatus::RePrepare), 0);
    }
}
