//! Readers: a few connections next to the writer's, each with a consistent snapshot.

use std::{borrow::Cow, mem};

use deadpool::{
    Runtime,
    managed::{Manager, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult, Timeouts},
};
use futures::FutureExt;

use crate::{
    database::{Connection, Row, TURN_WAIT_MAX, Value},
    dialect::Dialect,
    error::StoreError,
};

/// Number of connections for reading.
const READERS_MAX: usize = 4;

/// A pool of connections for reading. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Readers {
    pool: Pool<Opener>,
    dialect: Dialect,
}

/// Opens connections, and recycles those that are still usable.
struct Opener {
    dialect: Dialect,
    url: String,
}

/// A connection in a transaction with one snapshot.
pub(crate) struct Snapshot {
    connection: Option<Object<Opener>>,
    dialect: Dialect,
}

/// A reader for a single statement. One statement is consistent without a transaction, which saves two of three round
/// trips to PostgreSQL.
pub(crate) struct SingleStatement {
    readers: Readers,
    has_read: bool,
}

impl Readers {
    pub(crate) fn new(dialect: Dialect, url: String) -> Self {
        let timeouts = Timeouts { wait: Some(TURN_WAIT_MAX), create: None, recycle: None };
        let pool = Pool::builder(Opener { dialect, url }).max_size(READERS_MAX).timeouts(timeouts);
        let pool = pool.runtime(Runtime::Tokio1).build().expect("the pool has a runtime for its timeouts");
        Self { pool, dialect }
    }

    /// Waits for a connection and begins a transaction for reading.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        // A restarted server has closed every pooled connection; the attempt after the last one opens a new connection.
        for _ in 0..READERS_MAX {
            match self.begin().await {
                Err(StoreError::Unreachable(_)) => {}
                begun => return begun,
            }
        }
        self.begin().await
    }

    /// Returns a reader for one statement. It waits for a connection when the statement runs.
    pub(crate) fn single_statement(&self) -> SingleStatement {
        SingleStatement { readers: self.clone(), has_read: false }
    }

    async fn begin(&self) -> Result<Snapshot, StoreError> {
        let connection = self.pool.get().await.map_err(pool_error)?;
        let mut snapshot = Snapshot { connection: Some(connection), dialect: self.dialect };
        snapshot.connection()?.run_kept(self.dialect.begin_reading()).await?;
        Ok(snapshot)
    }

    /// Returns whether no reader is active.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_idle(&self) -> bool {
        let status = self.pool.status();
        status.available == status.size && status.waiting == 0
    }

    /// Closes idle connections now, and the others when they are returned.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

impl Snapshot {
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        let connection = self.connection.as_deref_mut();
        connection.ok_or_else(|| StoreError::Unreachable("the connection was returned to the pool".to_owned()))
    }
}

impl SingleStatement {
    /// Returns the rows of the statement, at most `most` of them. Refuses a second statement, which would see another
    /// snapshot.
    pub(crate) async fn rows(
        &mut self,
        sql: Cow<'static, str>,
        values: Vec<Value>,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        if mem::replace(&mut self.has_read, true) {
            return Err(StoreError::Database("a reader for one statement cannot run another".to_owned()));
        }
        // As in [`Readers::snapshot`]: the attempt after the last pooled connection opens a new one.
        for _ in 0..READERS_MAX {
            match self.read(sql.clone(), values.clone(), most).await {
                Err(StoreError::Unreachable(_)) => {}
                read => return read,
            }
        }
        self.read(sql, values, most).await
    }

    async fn read(&self, sql: Cow<'static, str>, values: Vec<Value>, most: usize) -> Result<Vec<Row>, StoreError> {
        self.readers.pool.get().await.map_err(pool_error)?.rows(sql, values, most).await
    }
}

impl Drop for Snapshot {
    /// Ends the transaction at once; PostgreSQL would otherwise keep old row versions for it.
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let end = async move {
            if connection.run_kept("rollback").await.is_err() {
                drop(Object::take(connection));
            }
        };
        match self.dialect {
            // On SQLite the rollback completes without waiting.
            Dialect::Sqlite => drop(end.now_or_never()),
            Dialect::Postgres => {
                // Without a runtime the process is ending, and the server ends the transaction.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(end);
                }
            }
        }
    }
}

impl Manager for Opener {
    type Type = Connection;
    type Error = StoreError;

    async fn create(&self) -> Result<Connection, StoreError> {
        Connection::open(self.dialect, &self.url).await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<StoreError> {
        match connection.is_usable() {
            true => Ok(()),
            false => Err(RecycleError::message("the connection was lost")),
        }
    }
}

fn pool_error(error: PoolError<StoreError>) -> StoreError {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(_) => StoreError::Busy,
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            StoreError::Unreachable("the store is closed".to_owned())
        }
    }
}
