//! Opening, reading and writing: one writer at a time, readers beside it on a consistent snapshot, hints after every commit.

use std::{
    fmt,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    sync::{Arc, Once},
};

use gpuaas_model::{Clock, OperationId, StreamName};
use sqlx::{Any, AnyPool, Transaction, any::AnyPoolOptions};
use tokio::sync::broadcast;

use crate::{dialect::Dialect, error::StoreError, migrate};

/// Readers beside the one writer.
const READERS_MAX: u32 = 4;
/// Hints that a slow subscriber may fall behind before it has to read rows instead.
const HINTS_KEPT: usize = 4_096;

/// Where the store is.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:///path/to/file.db`.
    pub url: String,
}

impl fmt::Debug for StoreOptions {
    /// Without the address's second half: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("url", &format_args!("{}:…", self.scheme())).finish()
    }
}

impl StoreOptions {
    fn scheme(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }
}

/// The rows. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: AnyPool,
    readers: AnyPool,
    pub(crate) dialect: Dialect,
    clock: Arc<dyn Clock>,
    changes: broadcast::Sender<Change>,
}

/// Something was committed. A hint: it may be lost, and whoever needs to be sure reads rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An event was appended.
    Event {
        /// To which stream.
        stream: StreamName,
        /// With which sequence.
        sequence: u64,
    },
    /// An operation was accepted or asked to end.
    Operation(OperationId),
}

/// A consistent view of all rows.
pub struct Reader {
    pub(crate) transaction: Transaction<'static, Any>,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether one of its statements failed.
    pub(crate) failed: bool,
}

/// A change of rows: all of it or, when dropped without [`Tx::commit`], nothing. Reads like a [`Reader`].
pub struct Tx {
    reader: Reader,
    changes: broadcast::Sender<Change>,
    pub(crate) hints: Vec<Change>,
}

impl Store {
    /// Opens the store, makes it if it is not there, and brings its schema up to this version's.
    pub async fn open(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let dialect = Dialect::of(&options.url)
            .ok_or_else(|| StoreError::Database(format!("{}: is no database that is known", options.scheme())))?;
        if let Some(file) = dialect.file(&options.url) {
            make_private(&file).map_err(|error| StoreError::Database(format!("{}: {error}", file.display())))?;
        }
        let writer = pool(dialect, 1).connect(&options.url).await?;
        migrate::run(writer.begin_with(dialect.begin()).await?, dialect).await?;
        let readers = pool(dialect, READERS_MAX).connect(&options.url).await?;
        Ok(Self { writer, readers, dialect, clock, changes: broadcast::Sender::new(HINTS_KEPT) })
    }

    /// Begins a change. Others wait until it is committed or dropped: never hold one across anything but other statements.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let transaction = self.writer.begin_with(self.dialect.begin()).await?;
        Ok(Tx { reader: self.reader(transaction), changes: self.changes.clone(), hints: Vec::new() })
    }

    /// A consistent view of all that is committed now.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        Ok(self.reader(self.readers.begin().await?))
    }

    /// What is committed from now on, as hints.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Closes every connection, so that the file is whole on disk.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    fn reader(&self, transaction: Transaction<'static, Any>) -> Reader {
        Reader { transaction, dialect: self.dialect, clock: self.clock.clone(), failed: false }
    }
}

impl Tx {
    /// Makes the change durable, then tells those who listen. A change of which the database refused a part is refused as a whole.
    pub async fn commit(self) -> Result<(), StoreError> {
        if self.reader.failed {
            // PostgreSQL answers such a commit with a rollback and no error, and SQLite would keep the rest.
            return Err(StoreError::Database("a statement of this change has failed".to_owned()));
        }
        self.reader.transaction.commit().await?;
        for hint in self.hints {
            // Nobody listening is fine: rows are the truth.
            let _ = self.changes.send(hint);
        }
        Ok(())
    }
}

impl std::ops::Deref for Tx {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl std::ops::DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
}

fn pool(dialect: Dialect, connections_max: u32) -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(connections_max).after_connect(move |connection, _| {
        Box::pin(async move {
            let setup = sqlx::AssertSqlSafe(dialect.connection_setup());
            sqlx::raw_sql(setup).execute(&mut *connection).await?;
            Ok(())
        })
    })
}

/// Makes the file if need be and keeps it to its owner.
fn make_private(file: &std::path::Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    std::fs::set_permissions(file, Permissions::from_mode(0o600))
}
