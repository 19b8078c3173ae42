//! Opens the store and gives out readers and writers: one writer at a time, readers on consistent snapshots, hints
//! after every commit.
//!
//! One writer at a time also holds on PostgreSQL, across replicas. Every change takes the next audit number and the
//! next number of an event stream, so concurrent changes would wait for each other anyway, or deadlock.

use std::{
    borrow::Cow,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::PathBuf,
    sync::Arc,
};

use gpuaas_model::Clock;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use crate::{
    counts::{Counters, StoreCounts},
    damage::Damage,
    database::{Connection, Row, Value},
    dialect::Dialect,
    disk_space::DiskFull,
    error::StoreError,
    hint::{self, Change, Listener},
    kept_mark::History,
    migrate,
    options::StoreOptions,
    query::text,
    readers::{Readers, SingleStatement, Snapshot},
    record_verifier::RecordVerifier,
    sealing_record::SealingRecord,
    writer::{Announced, CommitObservers, WriteTurn, Writer},
};

/// Hints buffered per subscriber. A subscriber that falls further behind has to read rows instead.
const HINTS_KEPT: usize = 4_096;

/// Name of a row that is inserted and deleted in one change to test for free space.
pub(crate) const PROBE: &str = "room";
/// Size of an ordinary change.
const PROBE_BYTES: u32 = 32 * 1_024;

/// Awaited before every change and every reader. An error prevents both.
#[cfg(feature = "simulation")]
pub type Gate = Arc<dyn Fn() -> futures::future::BoxFuture<'static, Result<(), StoreError>> + Send + Sync>;

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
    audit_written: Arc<Notify>,
    listener: Option<Listener>,
    pub(crate) disk_full: DiskFull,
    pub(crate) damage: Damage,
    pub(crate) record_verifier: RecordVerifier,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) simulated: Simulated,
    #[cfg(feature = "simulation")]
    pub(crate) gate: Option<Gate>,
}

/// Deviations for a simulation; all off outside of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulated {
    /// Leases follow the simulated clock, and several engines in this process act as replicas.
    pub(crate) shared: bool,
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
    pub(crate) announced: Announced,
}

impl Store {
    /// Opens the store, creates it if it does not exist, and migrates its schema to this version.
    pub async fn open(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let (mut store, origin) = Self::connect(options, clock)?;
        // Boxed: callers keep the future of this function within theirs.
        let mut turn = Box::pin(store.writer.acquire()).await?;
        Box::pin(prepare(turn.connection()?, store.dialect)).await?;
        Box::pin(turn.commit(Announced::default())).await?;
        if store.dialect.is_shared() {
            store.listener = Some(Box::pin(hint::listen(options.url.clone(), origin, store.changes.clone())).await?);
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
        let audit_written: Arc<Notify> = Arc::default();
        let (disk_full, damage, counters) = (DiskFull::default(), Damage::default(), Counters::default());
        let history = History::new(clock.clone());
        let writer = Writer::new(
            CommitObservers {
                changes: changes.clone(),
                audit_written: audit_written.clone(),
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
            audit_written,
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
        Ok(Tx { reader: self.reader(ConnectionSource::WriteTurn(turn)), announced: Announced::default() })
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

    /// Waits until this process has committed an audit record since the previous call returned. One caller at a time.
    pub async fn audit_written(&self) {
        self.audit_written.notified().await;
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

    /// Returns the totals since the store was opened.
    pub fn counts(&self) -> StoreCounts {
        self.counters.totals()
    }

    /// Returns the first damage that the database reported since the store was opened.
    pub fn damage(&self) -> Option<&str> {
        self.damage.first()
    }

    /// Returns whether the database accepts changes. Costs nothing until a change was refused because the disk is full;
    /// from then on it tries a change that leaves no rows.
    pub async fn accepts_changes(&self) -> Result<bool, StoreError> {
        if !self.disk_full.is_set() {
            return Ok(true);
        }
        match self.try_change().await {
            Ok(()) => {
                self.disk_full.clear();
                Ok(true)
            }
            Err(StoreError::Full(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn try_change(&self) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        // Bytes that cannot be compressed.
        let bytes = (0..PROBE_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let insert = "insert into settings (name, value) values ($1, $2)";
        tx.execute(insert, vec![text(PROBE), Value::Blob(bytes)]).await?;
        tx.execute("delete from settings where name = $1", vec![text(PROBE)]).await?;
        tx.commit().await
    }

    /// Returns at once: without the feature there is no gate.
    #[cfg(not(feature = "simulation"))]
    async fn pass_gate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for the gate, if there is one.
    #[cfg(feature = "simulation")]
    async fn pass_gate(&self) -> Result<(), StoreError> {
        match &self.gate {
            Some(gate) => gate().await,
            None => Ok(()),
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
            ConnectionSource::WriteTurn(turn) => turn.commit(self.announced).await,
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

    /// Runs a statement and returns the number of rows that it changed. A composed statement may contain only names
    /// that this crate defines.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>> + Send,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        let ran = self.connection()?.execute(sql, values).await;
        self.record_outcome(ran)
    }

    /// Returns all rows of a statement.
    pub(crate) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.read(sql.into(), values, usize::MAX).await
    }

    /// Returns all rows of a statement with list values: `json_each($1)` is a table with the items of the first value
    /// in its column `value`.
    pub(crate) async fn rows_with_lists(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        self.read(self.dialect.with_lists(sql), values, usize::MAX).await
    }

    /// Returns the first row of a statement.
    pub(crate) async fn row(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql.into(), values, 1).await?.pop())
    }

    /// Returns the record in the first row's column `doc`. The statement has to yield the row's key too, for error
    /// messages.
    pub(crate) async fn find<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<T>, StoreError> {
        self.row(sql, values).await?.map(|row| row.record("doc")).transpose()
    }

    /// Returns the records in the column `doc` of all rows. The statement has to yield the rows' keys too.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows(sql, values).await?.iter().map(|row| row.record("doc")).collect()
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
