//! Opening, reading and writing: one writer at a time, readers beside it on a consistent snapshot, hints after every commit.
//!
//! One writer at a time holds on PostgreSQL too, across replicas: every change there takes the numbers of the audit and of a stream, so that
//! changes would wait for each other anyway, or lock each other up half-way.

use std::{
    fmt,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    sync::{Arc, Once},
    time::Duration,
};

use gpuaas_model::{Clock, NodeId, OperationId, StreamName, TokenId};
use sqlx::{Any, AnyPool, Connection, Row, Transaction, any::AnyPoolOptions};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::{
    address,
    dialect::Dialect,
    error::StoreError,
    genuine::Genuine,
    hint::{self, Listener},
    migrate,
    room::Room,
    sealing::SealingRecord,
};

/// Readers beside the one writer.
const READERS_MAX: u32 = 4;
/// How long a change or a reader waits for its turn in this process, or for a database that restarts.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);
/// Hints that a slow subscriber may fall behind before it has to read rows instead.
const HINTS_KEPT: usize = 4_096;

/// Where the store is.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:///path/to/file.db`, or `postgres://user:password@host/database?sslmode=verify-full`. Only a host of this machine, or
    /// a folder of sockets, does without that `sslmode`. A pooler in between must pool sessions, not transactions.
    pub url: String,
}

impl fmt::Debug for StoreOptions {
    /// Without the address's second half: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("url", &format_args!("{}:…", self.scheme())).finish()
    }
}

impl StoreOptions {
    /// Whether the store may be opened there, as far as its address says: it is known, and over a network it must prove itself.
    pub fn problem(&self) -> Option<StoreError> {
        self.check().err()
    }

    fn check(&self) -> Result<Dialect, StoreError> {
        let dialect = Dialect::of(&self.url)
            .ok_or_else(|| StoreError::Database(format!("{}: is no database that is known", self.scheme())))?;
        address::check(dialect, &self.url)?;
        Ok(dialect)
    }

    fn scheme(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }
}

/// The rows. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) writer: AnyPool,
    pub(crate) readers: AnyPool,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Arc<dyn Clock>,
    changes: broadcast::Sender<Change>,
    /// This process, among those who announce hints to each other.
    origin: Uuid,
    listener: Option<Listener>,
    pub(crate) room: Room,
    pub(crate) genuine: Genuine,
    pub(crate) simulated: Simulated,
    #[cfg(feature = "simulation")]
    pub(crate) gate: Option<crate::simulation::Gate>,
}

/// What a simulation changes; nothing outside of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulated {
    /// Leases go by the clock of the simulation, and several engines of this process stand for replicas.
    pub(crate) shared: bool,
    /// The database's answers are waited for before anything else happens.
    #[cfg(feature = "simulation")]
    pub(crate) at_once: bool,
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
    /// A node changed, or who holds it: perhaps what it may do, and what may be open to it.
    Node(NodeId),
    /// A token was withdrawn.
    Token(TokenId),
    /// Another sealing key is in use, or rows have come under the one in use.
    Sealing,
    /// Hints of other processes may have been lost: anything may have changed.
    Missed,
}

/// A consistent view of all rows.
pub struct Reader {
    pub(crate) transaction: Transaction<'static, Any>,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) simulated: Simulated,
    /// Whether one of its statements failed.
    pub(crate) failed: bool,
    pub(crate) room: Room,
    pub(crate) genuine: Genuine,
    /// Which sealing key is in use, once it was looked at: it stays so until this ends.
    pub(crate) sealing: Option<Box<Option<SealingRecord>>>,
}

/// A change of rows: all of it or, when dropped without [`Tx::commit`], nothing. Reads like a [`Reader`].
pub struct Tx {
    reader: Reader,
    changes: broadcast::Sender<Change>,
    announces_as: Option<Uuid>,
    pub(crate) hints: Vec<Change>,
}

impl Store {
    /// Opens the store, makes it if it is not there, and brings its schema up to this version's.
    pub async fn open(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        static DRIVERS: Once = Once::new();
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let dialect = options.check()?;
        if let Some(file) = dialect.file(&options.url) {
            make_private(&file).map_err(|error| StoreError::Database(format!("{}: {error}", file.display())))?;
        }
        let writer = pool(dialect, 1).connect(&options.url).await?;
        refuse_old_server(&writer, dialect).await?;
        migrate::run(begin(&writer, dialect).await?, dialect).await?;
        let readers = pool(dialect, READERS_MAX).connect(&options.url).await?;
        let (changes, origin) = (broadcast::Sender::new(HINTS_KEPT), Uuid::new_v4());
        let listener = match dialect.is_shared() {
            true => Some(hint::listen(options.url.clone(), origin, changes.clone()).await?),
            false => None,
        };
        Ok(Self {
            writer,
            readers,
            dialect,
            clock,
            changes,
            origin,
            listener,
            room: Room::default(),
            genuine: Genuine::default(),
            simulated: Simulated::default(),
            #[cfg(feature = "simulation")]
            gate: None,
        })
    }

    /// Begins a change. Others wait until it is committed or dropped: never hold one across anything but other statements.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.rest().await;
        let transaction = self.simulated.answer(begin(&self.writer, self.dialect)).await?;
        Ok(Tx {
            reader: self.reader(transaction),
            changes: self.changes.clone(),
            announces_as: self.dialect.is_shared().then_some(self.origin),
            hints: Vec::new(),
        })
    }

    /// A consistent view of all that is committed now. To be dropped soon: a server ends one that rests for ten seconds.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        self.rest().await;
        let transaction = self.simulated.answer(self.readers.begin_with(self.dialect.begin_reading())).await?;
        Ok(self.reader(transaction))
    }

    /// What is committed from now on, as hints.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Whether other processes may use it at the same time.
    pub fn is_shared(&self) -> bool {
        self.dialect.is_shared() || self.simulated.shared
    }

    /// Closes every connection, so that the file is whole on disk, and hears no more hints.
    pub async fn close(&self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        self.readers.close().await;
        self.writer.close().await;
    }

    fn reader(&self, transaction: Transaction<'static, Any>) -> Reader {
        let (dialect, clock, simulated) = (self.dialect, self.clock.clone(), self.simulated);
        let (room, genuine) = (self.room.clone(), self.genuine.clone());
        Reader { transaction, dialect, clock, simulated, failed: false, room, genuine, sealing: None }
    }
}

impl Tx {
    /// Makes the change durable, then tells those who listen. A change of which the database refused a part is refused as a whole.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        if self.reader.failed {
            // PostgreSQL answers such a commit with a rollback and no error, and SQLite would keep the rest.
            return Err(StoreError::Database("a statement of this change has failed".to_owned()));
        }
        if let Some(origin) = self.announces_as {
            self.reader.announce(origin, &self.hints).await?;
        }
        let committed = self.reader.simulated.answer(self.reader.transaction.commit()).await;
        committed
            .map_err(|error| StoreError::from(error).of_commit())
            .inspect_err(|error| self.reader.room.take_note(error))?;
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

/// Begins a transaction that is the only one to write until it ends.
async fn begin(pool: &AnyPool, dialect: Dialect) -> Result<Transaction<'static, Any>, StoreError> {
    let mut transaction = pool.begin_with(dialect.begin()).await?;
    if let Some(lock) = dialect.lock_writers() {
        sqlx::raw_sql(lock).execute(&mut *transaction).await?;
    }
    Ok(transaction)
}

async fn refuse_old_server(pool: &AnyPool, dialect: Dialect) -> Result<(), StoreError> {
    let Some(sql) = dialect.refuses_server() else { return Ok(()) };
    match sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_optional(pool).await? {
        Some(row) => Err(StoreError::Database(row.try_get("problem")?)),
        None => Ok(()),
    }
}

fn pool(dialect: Dialect, connections_max: u32) -> AnyPoolOptions {
    let options = AnyPoolOptions::new().max_connections(connections_max).acquire_timeout(TURN_WAIT_MAX);
    // A full disk has SQLite end a change by itself, unknown to the driver, which would refuse every later one on that connection.
    let options = options.before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }));
    options.after_connect(move |connection, _| {
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
