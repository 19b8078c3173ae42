//! Opens the store and gives out readers and writers: one writer at a time, readers on consistent snapshots, hints
//! after every commit.
//!
//! One writer at a time also holds on PostgreSQL, across replicas. Every change takes the next audit number and the
//! next number of an event stream, so concurrent changes would wait for each other anyway, or deadlock.

use std::{
    borrow::Cow,
    fmt,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use gpuaas_model::{Clock, NodeId, OperationId, StreamName, TokenId};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::{
    address,
    counts::Counters,
    damage::Damage,
    database::{Connection, Row, Value},
    dialect::Dialect,
    disk_space::DiskFull,
    error::StoreError,
    hint::{self, Listener},
    history::History,
    migrate,
    readers::{Readers, SingleStatement, Snapshot},
    record_verifier::RecordVerifier,
    sealing::SealingRecord,
    writer::{CommitObservers, WriteTurn, Writer},
};

/// How long a change waits for its turn, or a reader for a connection, within this process.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);
/// Hints buffered per subscriber. A subscriber that falls further behind has to read rows instead.
const HINTS_KEPT: usize = 4_096;

/// The location of the store.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite:///path/to/file.db`, or `postgres://user:password@host/database?sslmode=verify-full`. Only a host of
    /// this machine or a folder of sockets may omit that `sslmode`. A pooler in between must pool sessions, not
    /// transactions.
    pub url: String,
}

impl fmt::Debug for StoreOptions {
    /// Prints only the scheme: the rest of the address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("url", &format_args!("{}:…", self.scheme())).finish()
    }
}

impl StoreOptions {
    /// Returns the error with which [`Store::open`] would refuse this address; `None` if it is acceptable. Checks that
    /// the scheme is supported and that a database across a network has to prove its identity.
    pub fn problem(&self) -> Option<StoreError> {
        self.check().err()
    }

    pub(crate) fn check(&self) -> Result<Dialect, StoreError> {
        let dialect = Dialect::of(&self.url)
            .ok_or_else(|| StoreError::Database(format!("unsupported database scheme: {}", self.scheme())))?;
        address::check(dialect, &self.url)?;
        Ok(dialect)
    }

    fn scheme(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }
}

/// The database with its writer and readers. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    pub(crate) dialect: Dialect,
    /// The path of the SQLite file; `None` on PostgreSQL.
    pub(crate) file: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
    changes: broadcast::Sender<Change>,
    listener: Option<Listener>,
    pub(crate) disk_full: DiskFull,
    pub(crate) damage: Damage,
    pub(crate) record_verifier: RecordVerifier,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) simulated: Simulated,
    #[cfg(feature = "simulation")]
    pub(crate) gate: Option<crate::simulation::Gate>,
}

/// Deviations for a simulation; all off outside of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulated {
    /// Leases follow the simulated clock, and several engines in this process act as replicas.
    pub(crate) shared: bool,
}

/// A hint that something was committed. Hints may be lost; a subscriber that must be certain reads rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An event was appended.
    Event {
        /// The stream that it was appended to.
        stream: StreamName,
        /// Its number within that stream.
        sequence: u64,
    },
    /// An operation was accepted, or its cancellation was requested.
    Operation(OperationId),
    /// A node, its allocation or its connection changed, and with them perhaps its rights and the access to it.
    Node(NodeId),
    /// A token was revoked.
    Token(TokenId),
    /// A task-signing key or an authority was created or changed.
    Keys,
    /// Another sealing key is in use, or more rows were sealed under the current one.
    Sealing,
    /// Hints of other processes may have been lost: anything may have changed.
    Missed,
}

/// A consistent view of all rows.
pub struct Reader {
    source: ConnectionSource,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) simulated: Simulated,
    pub(crate) disk_full: DiskFull,
    pub(crate) damage: Damage,
    pub(crate) record_verifier: RecordVerifier,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    /// The sealing record, cached after its first read: it cannot change while this reader lives.
    pub(crate) sealing: Option<Box<Option<SealingRecord>>>,
}

/// The connection behind a reader or a change.
enum ConnectionSource {
    Snapshot(Snapshot),
    SingleStatement(SingleStatement),
    WriteTurn(WriteTurn),
}

/// A change of rows: all or nothing. Dropping it without [`Tx::commit`] rolls it back. Reads like a [`Reader`].
pub struct Tx {
    reader: Reader,
    pub(crate) hints: Vec<Change>,
}

impl Store {
    /// Opens the store, creates it if it does not exist, and migrates its schema to this version.
    pub async fn open(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let (mut store, origin) = Self::connect(options, clock)?;
        let mut turn = store.writer.acquire().await?;
        prepare(turn.connection()?, store.dialect).await?;
        turn.commit(Vec::new()).await?;
        if store.dialect.is_shared() {
            store.listener = Some(hint::listen(options.url.clone(), origin, store.changes.clone()).await?);
        }
        Ok(store)
    }

    /// Returns the store without migrating its schema and without listening to hints of other processes, and the id
    /// under which it announces its own hints.
    pub(crate) fn connect(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<(Self, Uuid), StoreError> {
        let dialect = options.check()?;
        if let Some(file) = dialect.file(&options.url) {
            make_private(&file).map_err(|error| StoreError::Database(format!("{}: {error}", file.display())))?;
        }
        let (changes, origin) = (broadcast::Sender::new(HINTS_KEPT), Uuid::new_v4());
        let (disk_full, damage, counters) = (DiskFull::default(), Damage::default(), Counters::default());
        let history = History::new(clock.clone());
        let writer = Writer::new(
            CommitObservers {
                changes: changes.clone(),
                hint_origin: dialect.is_shared().then_some(origin),
                disk_full: disk_full.clone(),
                damage: damage.clone(),
                counters: counters.clone(),
                history: history.clone(),
            },
            dialect,
            options.url.clone(),
        );
        let store = Self {
            writer,
            readers: Readers::new(dialect, options.url.clone()),
            dialect,
            file: dialect.file(&options.url),
            clock,
            changes,
            listener: None,
            disk_full,
            damage,
            record_verifier: RecordVerifier::default(),
            counters,
            history,
            simulated: Simulated::default(),
            #[cfg(feature = "simulation")]
            gate: None,
        };
        Ok((store, origin))
    }

    /// Begins a change. Other changes wait until it is committed or dropped, so hold it across nothing but its
    /// statements.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.pass_gate().await?;
        let turn = self.writer.acquire().await.inspect_err(|error| self.damage.record(error))?;
        Ok(Tx { reader: self.reader(ConnectionSource::WriteTurn(turn)), hints: Vec::new() })
    }

    /// Returns a consistent view of everything committed until now. Drop it soon: PostgreSQL ends a session that is
    /// idle in a transaction for ten seconds.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        self.pass_gate().await?;
        let snapshot = self.readers.snapshot().await.inspect_err(|error| self.damage.record(error))?;
        Ok(self.reader(ConnectionSource::Snapshot(snapshot)))
    }

    /// Returns a view for one statement, which sees everything committed when it runs. It holds a connection only while
    /// that statement runs.
    pub async fn read_once(&self) -> Result<Reader, StoreError> {
        self.pass_gate().await?;
        Ok(self.reader(ConnectionSource::SingleStatement(self.readers.single_statement())))
    }

    /// Subscribes to hints about commits from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Returns whether other processes may use the store at the same time.
    pub fn is_shared(&self) -> bool {
        self.dialect.is_shared() || self.simulated.shared
    }

    /// Closes every connection, so that the SQLite file is complete on disk, makes the high-water mark durable, and
    /// stops listening to hints.
    pub async fn close(&self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        self.readers.close();
        self.writer.close().await;
        if let Err(error) = self.sync_mark() {
            tracing::error!(%error, "the high-water mark may not be durable");
        }
    }

    fn reader(&self, source: ConnectionSource) -> Reader {
        let (dialect, clock, simulated) = (self.dialect, self.clock.clone(), self.simulated);
        let (disk_full, damage, record_verifier) =
            (self.disk_full.clone(), self.damage.clone(), self.record_verifier.clone());
        let (counters, history) = (self.counters.clone(), self.history.clone());
        Reader {
            source,
            dialect,
            clock,
            simulated,
            disk_full,
            damage,
            record_verifier,
            counters,
            history,
            sealing: None,
        }
    }
}

impl Tx {
    /// Makes the change durable, then sends its hints. Fails without any effect if one of its statements failed.
    pub async fn commit(self) -> Result<(), StoreError> {
        match self.reader.source {
            ConnectionSource::WriteTurn(turn) => turn.commit(self.hints).await,
            ConnectionSource::Snapshot(_) | ConnectionSource::SingleStatement(_) => {
                Err(StoreError::Database("a reader cannot commit".to_owned()))
            }
        }
    }
}

impl Reader {
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.source {
            ConnectionSource::Snapshot(snapshot) => snapshot.connection(),
            ConnectionSource::WriteTurn(turn) => turn.connection(),
            ConnectionSource::SingleStatement(_) => {
                Err(StoreError::Database("a reader for one statement has no connection".to_owned()))
            }
        }
    }

    /// Returns the rows of a statement, at most `most` of them.
    pub(crate) async fn read(
        &mut self,
        sql: Cow<'static, str>,
        values: Vec<Value>,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let ran = match &mut self.source {
            // Boxed to keep the futures of the other variants small.
            ConnectionSource::SingleStatement(once) => Box::pin(once.rows(sql, values, most)).await,
            ConnectionSource::Snapshot(_) | ConnectionSource::WriteTurn(_) => {
                self.connection()?.rows(sql, values, most).await
            }
        };
        self.record_outcome(ran)
    }

    /// Counts a statement and records its failure: after a failed statement, the change must not commit the others.
    pub(crate) fn record_outcome<T>(&mut self, ran: Result<T, StoreError>) -> Result<T, StoreError> {
        self.counters.count_statement();
        if let Err(error) = &ran {
            self.disk_full.record(error);
            self.damage.record(error);
            if let ConnectionSource::WriteTurn(turn) = &mut self.source {
                turn.record_failure(error);
            }
        }
        ran
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

/// Migrates the schema to this version within the open transaction.
pub(crate) async fn prepare(connection: &mut Connection, dialect: Dialect) -> Result<(), StoreError> {
    refuse_old_server(connection, dialect).await?;
    migrate::run(connection, dialect).await
}

async fn refuse_old_server(connection: &mut Connection, dialect: Dialect) -> Result<(), StoreError> {
    let Some(sql) = dialect.server_version_check() else { return Ok(()) };
    match connection.rows(sql, Vec::new(), 1).await?.first() {
        Some(row) => Err(StoreError::Database(row.text("problem")?.to_owned())),
        None => Ok(()),
    }
}

/// Creates the file if it does not exist, and restricts it to its owner (mode 0600).
fn make_private(file: &std::path::Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    std::fs::set_permissions(file, Permissions::from_mode(0o600))
}
