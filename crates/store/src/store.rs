//! Opening, reading and writing: one writer at a time, readers beside it on a consistent snapshot, hints after every commit.
//!
//! One writer at a time holds on PostgreSQL too, across replicas: every change there takes the numbers of the audit and of a stream, so that
//! changes would wait for each other anyway, or lock each other up half-way.

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
    error::StoreError,
    genuine::Genuine,
    hint::{self, Listener},
    history::History,
    migrate,
    readers::{Lent, Once, Readers},
    room::Room,
    sealing::SealingRecord,
    writer::{Told, Turn, Writer},
};

/// How long a change or a reader waits for its turn in this process.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);
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

    pub(crate) fn check(&self) -> Result<Dialect, StoreError> {
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
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    pub(crate) dialect: Dialect,
    /// SQLite's file.
    pub(crate) file: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
    changes: broadcast::Sender<Change>,
    listener: Option<Listener>,
    pub(crate) room: Room,
    pub(crate) damage: Damage,
    pub(crate) genuine: Genuine,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) simulated: Simulated,
    #[cfg(feature = "simulation")]
    pub(crate) gate: Option<crate::simulation::Gate>,
}

/// What a simulation changes; nothing outside of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulated {
    /// Leases go by the clock of the simulation, and several engines of this process stand for replicas.
    pub(crate) shared: bool,
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
    /// A node changed, or who holds it, or where it is connected: perhaps what it may do, and what may be open to it.
    Node(NodeId),
    /// A token was withdrawn.
    Token(TokenId),
    /// A task-signing key or an authority was made or changed.
    Keys,
    /// Another sealing key is in use, or rows have come under the one in use.
    Sealing,
    /// Hints of other processes may have been lost: anything may have changed.
    Missed,
}

/// A consistent view of all rows.
pub struct Reader {
    held: Held,
    pub(crate) dialect: Dialect,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) simulated: Simulated,
    pub(crate) room: Room,
    pub(crate) damage: Damage,
    pub(crate) genuine: Genuine,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    /// Which sealing key is in use, once it was looked at: it stays so until this ends.
    pub(crate) sealing: Option<Box<Option<SealingRecord>>>,
}

/// The connection of somebody who reads or writes.
enum Held {
    Lent(Lent),
    Once(Once),
    Turn(Turn),
}

/// A change of rows: all of it or, when dropped without [`Tx::commit`], nothing. Reads like a [`Reader`].
pub struct Tx {
    reader: Reader,
    pub(crate) hints: Vec<Change>,
}

impl Store {
    /// Opens the store, makes it if it is not there, and brings its schema up to this version's.
    pub async fn open(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let (mut store, origin) = Self::connect(options, clock)?;
        let mut turn = store.writer.turn().await?;
        prepare(turn.connection()?, store.dialect).await?;
        turn.commit(Vec::new()).await?;
        if store.dialect.is_shared() {
            store.listener = Some(hint::listen(options.url.clone(), origin, store.changes.clone()).await?);
        }
        Ok(store)
    }

    /// The store as nobody has opened it yet: without its schema, and without hints of other processes, to which it is the returned one.
    pub(crate) fn connect(options: &StoreOptions, clock: Arc<dyn Clock>) -> Result<(Self, Uuid), StoreError> {
        let dialect = options.check()?;
        if let Some(file) = dialect.file(&options.url) {
            make_private(&file).map_err(|error| StoreError::Database(format!("{}: {error}", file.display())))?;
        }
        let (changes, origin) = (broadcast::Sender::new(HINTS_KEPT), Uuid::new_v4());
        let (room, damage, counters) = (Room::default(), Damage::default(), Counters::default());
        let history = History::new(clock.clone());
        let writer = Writer::new(
            Told {
                changes: changes.clone(),
                announces_as: dialect.is_shared().then_some(origin),
                room: room.clone(),
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
            room,
            damage,
            genuine: Genuine::default(),
            counters,
            history,
            simulated: Simulated::default(),
            #[cfg(feature = "simulation")]
            gate: None,
        };
        Ok((store, origin))
    }

    /// Begins a change. Others wait until it is committed or dropped: never hold one across anything but other statements.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.pass_gate().await?;
        let turn = self.writer.turn().await.inspect_err(|error| self.damage.take_note(error))?;
        Ok(Tx { reader: self.reader(Held::Turn(turn)), hints: Vec::new() })
    }

    /// A consistent view of all that is committed now. To be dropped soon: a server ends one that rests for ten seconds.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        self.pass_gate().await?;
        let lent = self.readers.lend().await.inspect_err(|error| self.damage.take_note(error))?;
        Ok(self.reader(Held::Lent(lent)))
    }

    /// A view of all that is committed when it reads, for one statement. It holds no connection before and none after.
    pub async fn read_once(&self) -> Result<Reader, StoreError> {
        self.pass_gate().await?;
        Ok(self.reader(Held::Once(self.readers.once())))
    }

    /// What is committed from now on, as hints.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Whether other processes may use it at the same time.
    pub fn is_shared(&self) -> bool {
        self.dialect.is_shared() || self.simulated.shared
    }

    /// Closes every connection, so that the file is whole on disk, with the mark that is kept of it, and hears no more hints.
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

    fn reader(&self, held: Held) -> Reader {
        let (dialect, clock, simulated) = (self.dialect, self.clock.clone(), self.simulated);
        let (room, damage, genuine) = (self.room.clone(), self.damage.clone(), self.genuine.clone());
        let (counters, history) = (self.counters.clone(), self.history.clone());
        Reader { held, dialect, clock, simulated, room, damage, genuine, counters, history, sealing: None }
    }
}

impl Tx {
    /// Makes the change durable, then tells those who listen. A change of which the database refused a part is refused as a whole.
    pub async fn commit(self) -> Result<(), StoreError> {
        match self.reader.held {
            Held::Turn(turn) => turn.commit(self.hints).await,
            Held::Lent(_) | Held::Once(_) => Err(StoreError::Database("a reader changes nothing".to_owned())),
        }
    }
}

impl Reader {
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.held {
            Held::Lent(lent) => lent.connection(),
            Held::Turn(turn) => turn.connection(),
            Held::Once(_) => Err(StoreError::Database("a reader of one statement has no connection".to_owned())),
        }
    }

    /// The rows of a statement, at most `most` of them.
    pub(crate) async fn read(
        &mut self,
        sql: Cow<'static, str>,
        values: Vec<Value>,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let ran = match &mut self.held {
            // Boxed, so that the futures of all others stay small.
            Held::Once(once) => Box::pin(once.rows(sql, values, most)).await,
            Held::Lent(_) | Held::Turn(_) => self.connection()?.rows(sql, values, most).await,
        };
        self.noted(ran)
    }

    /// Counts a statement, and notes one that failed: its change must not commit what the other statements did.
    pub(crate) fn noted<T>(&mut self, ran: Result<T, StoreError>) -> Result<T, StoreError> {
        self.counters.count_statement();
        if let Err(error) = &ran {
            self.room.take_note(error);
            self.damage.take_note(error);
            if let Held::Turn(turn) = &mut self.held {
                turn.note(error);
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

/// Brings the schema up to this version's, in the transaction that is open.
pub(crate) async fn prepare(connection: &mut Connection, dialect: Dialect) -> Result<(), StoreError> {
    refuse_old_server(connection, dialect).await?;
    migrate::run(connection, dialect).await
}

async fn refuse_old_server(connection: &mut Connection, dialect: Dialect) -> Result<(), StoreError> {
    let Some(sql) = dialect.refuses_server() else { return Ok(()) };
    match connection.rows(sql, Vec::new(), 1).await?.first() {
        Some(row) => Err(StoreError::Database(row.text("problem")?.to_owned())),
        None => Ok(()),
    }
}

/// Makes the file if need be and keeps it to its owner.
fn make_private(file: &std::path::Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    std::fs::set_permissions(file, Permissions::from_mode(0o600))
}
