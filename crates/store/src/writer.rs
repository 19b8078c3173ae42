//! The single writer: changes take turns, and changes that waited for each other share a commit (group commit).
//!
//! A change is a savepoint. When it is done and others wait, the next one begins in the same database transaction, and
//! the commit of the last makes all of them durable with one write to the disk. No caller gets success before that
//! commit. A change that is dropped rolls back only its own savepoint.
//!
//! A change sees the earlier changes of its group. If their commit fails, its own commit fails too; conclusions that it
//! drew from their rows can have reached a caller only as a refusal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::FutureExt;
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard, broadcast, oneshot},
    time::timeout,
};
use uuid::Uuid;

use crate::{
    counts::Counters,
    damage::Damage,
    database::Connection,
    dialect::Dialect,
    error::StoreError,
    hint,
    history::{Counted, History},
    room::Room,
    store::{Change, TURN_WAIT_MAX},
};

/// Most changes in one group: a failed commit loses at most this many.
const GROUP_MAX: usize = 64;
/// How long the first change of a group may wait for the commit while others still join.
const GROUP_AGE_MAX: Duration = Duration::from_millis(5);

/// Gives each change its turn. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

/// Receives the outcome of commits.
pub(crate) struct Told {
    pub(crate) changes: broadcast::Sender<Change>,
    /// The id under which hints are announced to other processes; `None` without other processes.
    pub(crate) announces_as: Option<Uuid>,
    pub(crate) room: Room,
    pub(crate) damage: Damage,
    pub(crate) counters: Counters,
    pub(crate) history: History,
}

struct Shared {
    dialect: Dialect,
    url: String,
    line: Arc<Mutex<Line>>,
    /// Number of changes that wait for a turn.
    waiting: AtomicUsize,
    told: Told,
    /// Whether commits run on the caller's thread and may block it; only in a simulation.
    at_once: AtomicBool,
}

/// State that each change hands to the next.
#[derive(Default)]
struct Line {
    connection: Option<Connection>,
    /// The open database transaction.
    group: Option<Group>,
}

#[derive(Default)]
struct Group {
    /// When the first change of the group was done and began to wait for the commit.
    waits_since: Option<Instant>,
    /// How the last savepoint ended, until that was sent to the database.
    left: Option<End>,
    done: Vec<Done>,
    /// Rows changed over the connection before the group began.
    changed_before: u64,
}

/// The outcome of a change's savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kept,
    Dropped,
}

/// A change that waits for the commit.
struct Done {
    hints: Vec<Change>,
    told: oneshot::Sender<Result<(), StoreError>>,
}

/// A change's turn: exclusive use of the writing connection, within one savepoint.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    line: Option<OwnedMutexGuard<Line>>,
    /// The error of the first failed statement; the change cannot be committed after it.
    failed: Option<StoreError>,
}

impl Writer {
    pub(crate) fn new(told: Told, dialect: Dialect, url: String) -> Self {
        let (line, waiting, at_once) = (Arc::default(), AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { dialect, url, line, waiting, told, at_once }) }
    }

    /// Waits for a turn and begins a change. Fails while changes are stopped because history went back, until a person
    /// decides.
    pub(crate) async fn turn(&self) -> Result<Turn, StoreError> {
        self.shared.told.history.must_go_on()?;
        let mut waiting = Waiting::new(self.shared.clone());
        let line = timeout(TURN_WAIT_MAX, self.shared.line.clone().lock_owned()).await;
        let line = line.map_err(|_| StoreError::Busy)?;
        waiting.has_its_turn();
        let turn = Turn { shared: self.shared.clone(), line: Some(line), failed: None };
        match self.shared.dialect {
            Dialect::Sqlite => turn.begun().await,
            // In a separate task, because the caller may be cancelled: between two statements the savepoint would be
            // undefined.
            Dialect::Postgres => {
                let begun = tokio::spawn(turn.begun());
                begun.await.map_err(|_| StoreError::Unreachable("the process ends".to_owned()))?
            }
        }
    }

    /// Runs commits on the caller's thread, before anything else happens.
    #[cfg(feature = "simulation")]
    pub(crate) fn commit_at_once(&self) {
        self.shared.at_once.store(true, Ordering::Relaxed);
    }

    /// Returns whether no change is open or being committed.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.shared.line.try_lock().is_ok_and(|line| line.group.is_none())
    }

    /// Closes the connection after the last turn has ended and its group is committed.
    pub(crate) async fn close(&self) {
        let mut line = self.shared.line.clone().lock_owned().await;
        while line.group.is_some() {
            self.shared.clone().commit(line).await;
            line = self.shared.line.clone().lock_owned().await;
        }
        line.connection = None;
    }
}

impl Turn {
    /// Returns the writing connection; fails if it was lost during this change.
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        let connection = self.line.as_mut().and_then(|line| line.connection.as_mut());
        connection.ok_or_else(|| StoreError::Unreachable("the connection was lost in this change".to_owned()))
    }

    /// Records a failed statement, so that the change cannot be committed.
    pub(crate) fn note(&mut self, error: &StoreError) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// Makes the change durable, perhaps together with others, then sends its hints.
    pub(crate) async fn commit(mut self, hints: Vec<Change>) -> Result<(), StoreError> {
        if let Some(failed) = &self.failed {
            // PostgreSQL would turn this commit into a rollback without an error; SQLite would commit the other
            // statements.
            if let StoreError::Damaged { .. } = failed {
                return Err(failed.clone());
            }
            return Err(StoreError::Database("a statement of this change has failed".to_owned()));
        }
        let (told, hears) = oneshot::channel();
        let mut line = self.line.take().ok_or(StoreError::Busy)?;
        if let Some(group) = &mut line.group {
            group.left = Some(End::Kept);
            group.waits_since.get_or_insert_with(Instant::now);
            group.done.push(Done { hints, told });
        }
        self.shared.pass_on(line);
        hears.await.unwrap_or_else(|_| Err(StoreError::Unreachable("the process ends".to_owned())))
    }

    /// Returns the turn with its savepoint begun.
    async fn begun(mut self) -> Result<Self, StoreError> {
        let Some(line) = self.line.as_mut() else { return Err(StoreError::Busy) };
        let begun = match line.group.is_some() {
            true => line.join(self.shared.dialect).await,
            false => line.begin(self.shared.dialect, &self.shared.url).await,
        };
        match begun {
            Ok(()) => Ok(self),
            Err(error) => {
                // The state of savepoints is unknown now, so the whole transaction is given up.
                line.fail(&error);
                Err(error)
            }
        }
    }
}

impl Drop for Turn {
    /// Rolls back an uncommitted change.
    fn drop(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        if let Some(group) = &mut line.group {
            group.left = Some(End::Dropped);
        }
        if line.connection.as_ref().is_none_or(|connection| !connection.is_in_transaction()) {
            // The earlier changes of the same transaction are lost with it.
            let why = self.failed.take().unwrap_or_else(|| StoreError::Unreachable("the transaction ended".to_owned()));
            line.fail(&why);
        }
        self.shared.pass_on(line);
    }
}

impl Line {
    /// Begins a savepoint in the open transaction.
    async fn join(&mut self, dialect: Dialect) -> Result<(), StoreError> {
        let left = self.group.as_mut().and_then(|group| group.left.take());
        let lost = || StoreError::Unreachable("the connection was lost".to_owned());
        let connection = self.connection.as_mut().ok_or_else(lost)?;
        connection.run(dialect.next_savepoint(left == Some(End::Dropped))).await
    }

    /// Begins a transaction, and connects first if necessary.
    async fn begin(&mut self, dialect: Dialect, url: &str) -> Result<(), StoreError> {
        let kept = self.connection.take().filter(Connection::is_usable);
        let (mut connection, is_fresh) = match kept {
            Some(connection) => (connection, false),
            None => (Connection::open(dialect, url).await?, true),
        };
        let mut begun = connection.begin(dialect.begin()).await;
        if matches!(begun, Err(StoreError::Unreachable(_))) && !is_fresh {
            // A connection lost between two transactions carried no uncommitted change.
            connection = Connection::open(dialect, url).await?;
            begun = connection.begin(dialect.begin()).await;
        }
        begun?;
        self.group = Some(Group { changed_before: connection.changed_rows(), ..Group::default() });
        self.connection = Some(connection);
        Ok(())
    }

    /// Drops the connection with its transaction, and fails every change that waits for the commit.
    fn fail(&mut self, why: &StoreError) {
        self.connection = None;
        for done in self.group.take().into_iter().flat_map(|group| group.done) {
            // The caller may have been cancelled.
            let _ = done.told.send(Err(why.clone()));
        }
    }
}

impl Shared {
    /// Passes the turn on. Commits the group first, unless another change waits and may join it.
    fn pass_on(self: &Arc<Self>, line: OwnedMutexGuard<Line>) {
        let Some(group) = &line.group else { return };
        let age = group.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        let has_room = group.done.len() < GROUP_MAX && age < GROUP_AGE_MAX;
        if has_room && self.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        self.settle(line);
    }

    /// Commits the group where blocking is allowed.
    fn settle(self: &Arc<Self>, line: OwnedMutexGuard<Line>) {
        let shared = self.clone();
        let is_nothing = line.group.as_ref().is_none_or(|group| group.done.is_empty());
        if self.dialect == Dialect::Sqlite && (is_nothing || self.at_once.load(Ordering::Relaxed)) {
            at_once(shared.commit(line));
            return;
        }
        // Without a runtime the process is ending, and the database rolls back the open transaction.
        let Ok(runtime) = Handle::try_current() else { return };
        match self.dialect {
            Dialect::Sqlite => drop(runtime.spawn_blocking(move || at_once(shared.commit(line)))),
            Dialect::Postgres => drop(runtime.spawn(shared.commit(line))),
        }
    }

    /// Ends the database transaction and reports the outcome to every change in it.
    async fn commit(self: Arc<Self>, mut line: OwnedMutexGuard<Line>) {
        let Some(mut group) = line.group.take() else { return };
        let done = std::mem::take(&mut group.done);
        let ended = match line.connection.as_mut() {
            Some(connection) => self.end(connection, &group, &done).await,
            None => Err(StoreError::Unreachable("the connection was lost".to_owned())),
        };
        match &ended {
            Ok(counted) => {
                self.told.counters.count_commit(done.len());
                self.told.history.acknowledge(*counted);
            }
            Err(error) => {
                self.told.room.take_note(error);
                self.told.damage.take_note(error);
                if let (StoreError::HistoryWentBack(_), Some(connection)) = (error, line.connection.as_mut()) {
                    self.told.history.leave_word(connection, self.dialect).await;
                }
                // SQLite keeps a transaction open after a failed commit; on PostgreSQL the state is unknown.
                line.connection = None;
            }
        }
        for Done { hints, told } in done {
            let hints = hints.into_iter().filter(|_| ended.is_ok());
            // A lost hint is harmless because subscribers read rows; the caller may have been cancelled.
            hints.for_each(|hint| drop(self.told.changes.send(hint)));
            let _ = told.send(ended.clone().map(drop));
        }
    }

    async fn end(
        &self,
        connection: &mut Connection,
        group: &Group,
        done: &[Done],
    ) -> Result<Option<Counted>, StoreError> {
        if done.is_empty() {
            return connection.run("rollback").await.map(|()| None);
        }
        if group.left == Some(End::Dropped) {
            connection.run(self.dialect.drop_savepoint()).await?;
        }
        if let Some(origin) = self.told.announces_as {
            hint::announce(connection, origin, done.iter().flat_map(|done| &done.hints)).await?;
        }
        let counted = self.told.history.count(connection, self.dialect, group.changed_before).await?;
        connection.run("commit").await.map_err(StoreError::of_commit)?;
        Ok(counted)
    }
}

/// Runs work that completes without awaiting another task, as all work on SQLite does.
fn at_once(work: impl Future<Output = ()>) {
    let done = work.now_or_never();
    debug_assert!(done.is_some(), "SQLite answers where it is asked");
}

/// A change that waits for its turn.
struct Waiting {
    shared: Arc<Shared>,
    had_its_turn: bool,
}

impl Waiting {
    fn new(shared: Arc<Shared>) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self { shared, had_its_turn: false }
    }

    fn has_its_turn(&mut self) {
        self.had_its_turn = true;
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Waiting {
    /// Passes the turn on if this was the last waiting change: a group may have been left open for it to commit.
    fn drop(&mut self) {
        if self.had_its_turn || self.shared.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let shared = self.shared.clone();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let line = shared.line.clone().lock_owned().await;
            shared.pass_on(line);
        });
    }
}
