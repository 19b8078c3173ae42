//! The one who writes: changes take turns, and those that waited for each other share a commit.
//!
//! A change is a savepoint. When it is done and others wait, the next one begins in the same transaction of the database, and the commit of the last
//! makes all of them durable with one write to the disk. Nobody is told that a change is done before that commit, and a change that is given up takes
//! only its own savepoint back.
//!
//! What may follow from what: a change sees those before it in its group. When their commit fails, so does its own, and what it had decided from them was
//! never told to anybody but as a refusal.

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

/// Changes that share a commit at most: what one failed commit takes with it.
const GROUP_MAX: usize = 64;
/// How long the first change of a group waits for the commit although others could still join.
const GROUP_AGE_MAX: Duration = Duration::from_millis(5);

/// Gives changes their turns. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

/// Who is told of commits, and of their failures.
pub(crate) struct Told {
    pub(crate) changes: broadcast::Sender<Change>,
    /// As whom hints are announced to other processes; `None` where there are none.
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
    /// How many wait for their turn.
    waiting: AtomicUsize,
    told: Told,
    /// Whether commits may hold up whoever asks for them: in a simulation.
    at_once: AtomicBool,
}

/// What goes from one change to the next.
#[derive(Default)]
struct Line {
    connection: Option<Connection>,
    /// The open transaction of the database.
    group: Option<Group>,
}

#[derive(Default)]
struct Group {
    /// When its first change was done, and began to wait for the commit.
    waits_since: Option<Instant>,
    /// How the last savepoint ended, where the database has not been told yet.
    left: Option<End>,
    done: Vec<Done>,
    /// How many rows had been changed over the connection when it began.
    changed_before: u64,
}

/// How a change ended.
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

/// A change's turn: the only connection that writes, in a savepoint of its own.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    line: Option<OwnedMutexGuard<Line>>,
    /// Why the change cannot be committed: one of its statements failed.
    failed: Option<StoreError>,
}

impl Writer {
    pub(crate) fn new(told: Told, dialect: Dialect, url: String) -> Self {
        let (line, waiting, at_once) = (Arc::default(), AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { dialect, url, line, waiting, told, at_once }) }
    }

    /// Waits for a turn and begins a change. Refused while history that went back waits for a person's decision.
    pub(crate) async fn turn(&self) -> Result<Turn, StoreError> {
        self.shared.told.history.must_go_on()?;
        let mut waiting = Waiting::new(self.shared.clone());
        let line = timeout(TURN_WAIT_MAX, self.shared.line.clone().lock_owned()).await;
        let line = line.map_err(|_| StoreError::Busy)?;
        waiting.has_its_turn();
        let turn = Turn { shared: self.shared.clone(), line: Some(line), failed: None };
        match self.shared.dialect {
            Dialect::Sqlite => turn.begun().await,
            // Beside the caller, who may go away: between two statements nobody would know which savepoint there is.
            Dialect::Postgres => {
                let begun = tokio::spawn(turn.begun());
                begun.await.map_err(|_| StoreError::Unreachable("the process ends".to_owned()))?
            }
        }
    }

    /// Has commits done where they are asked for, before anything else happens.
    #[cfg(feature = "simulation")]
    pub(crate) fn commit_at_once(&self) {
        self.shared.at_once.store(true, Ordering::Relaxed);
    }

    /// Whether no change is open or on its way to the disk.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.shared.line.try_lock().is_ok_and(|line| line.group.is_none())
    }

    /// Closes the connection when the last turn is over, and what was done is committed.
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
    /// The connection.
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        let connection = self.line.as_mut().and_then(|line| line.connection.as_mut());
        connection.ok_or_else(|| StoreError::Unreachable("the connection was lost in this change".to_owned()))
    }

    /// Notes that a statement failed: the change will not be committed.
    pub(crate) fn note(&mut self, error: &StoreError) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// Makes the change durable, perhaps together with others, then tells those who listen.
    pub(crate) async fn commit(mut self, hints: Vec<Change>) -> Result<(), StoreError> {
        if let Some(failed) = &self.failed {
            // PostgreSQL would answer such a commit with a rollback and no error, and SQLite would keep the rest.
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

    /// The turn with its savepoint.
    async fn begun(mut self) -> Result<Self, StoreError> {
        let Some(line) = self.line.as_mut() else { return Err(StoreError::Busy) };
        let begun = match line.group.is_some() {
            true => line.join(self.shared.dialect).await,
            false => line.begin(self.shared.dialect, &self.shared.url).await,
        };
        match begun {
            Ok(()) => Ok(self),
            Err(error) => {
                // Which savepoint there is now, if any, is unknown: the whole transaction goes.
                line.fail(&error);
                Err(error)
            }
        }
    }
}

impl Drop for Turn {
    /// Takes back what was not committed.
    fn drop(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        if let Some(group) = &mut line.group {
            group.left = Some(End::Dropped);
        }
        if line.connection.as_ref().is_none_or(|connection| !connection.is_in_transaction()) {
            // What was done before in the same transaction went with it.
            let why = self.failed.take().unwrap_or_else(|| StoreError::Unreachable("the transaction ended".to_owned()));
            line.fail(&why);
        }
        self.shared.pass_on(line);
    }
}

impl Line {
    /// Begins a savepoint in the transaction that is open.
    async fn join(&mut self, dialect: Dialect) -> Result<(), StoreError> {
        let left = self.group.as_mut().and_then(|group| group.left.take());
        let lost = || StoreError::Unreachable("the connection was lost".to_owned());
        let connection = self.connection.as_mut().ok_or_else(lost)?;
        connection.run(dialect.next_savepoint(left == Some(End::Dropped))).await
    }

    /// Begins a transaction, connecting if need be.
    async fn begin(&mut self, dialect: Dialect, url: &str) -> Result<(), StoreError> {
        let kept = self.connection.take().filter(Connection::is_usable);
        let (mut connection, is_fresh) = match kept {
            Some(connection) => (connection, false),
            None => (Connection::open(dialect, url).await?, true),
        };
        let mut begun = connection.begin(dialect.begin()).await;
        if matches!(begun, Err(StoreError::Unreachable(_))) && !is_fresh {
            // One that was lost between two changes took nothing with it.
            connection = Connection::open(dialect, url).await?;
            begun = connection.begin(dialect.begin()).await;
        }
        begun?;
        self.group = Some(Group { changed_before: connection.changed_rows(), ..Group::default() });
        self.connection = Some(connection);
        Ok(())
    }

    /// Gives the transaction up with its connection, and tells everybody who waits for the commit that it will not be.
    fn fail(&mut self, why: &StoreError) {
        self.connection = None;
        for done in self.group.take().into_iter().flat_map(|group| group.done) {
            // Whoever asked may have gone.
            let _ = done.told.send(Err(why.clone()));
        }
    }
}

impl Shared {
    /// Gives the turn to the next in line, and commits first unless the next one can join the group.
    fn pass_on(self: &Arc<Self>, line: OwnedMutexGuard<Line>) {
        let Some(group) = &line.group else { return };
        let age = group.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        let has_room = group.done.len() < GROUP_MAX && age < GROUP_AGE_MAX;
        if has_room && self.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        self.settle(line);
    }

    /// Commits the group, where that may block.
    fn settle(self: &Arc<Self>, line: OwnedMutexGuard<Line>) {
        let shared = self.clone();
        let is_nothing = line.group.as_ref().is_none_or(|group| group.done.is_empty());
        if self.dialect == Dialect::Sqlite && (is_nothing || self.at_once.load(Ordering::Relaxed)) {
            at_once(shared.commit(line));
            return;
        }
        // Without a runtime the process ends, and the database takes back what is open.
        let Ok(runtime) = Handle::try_current() else { return };
        match self.dialect {
            Dialect::Sqlite => drop(runtime.spawn_blocking(move || at_once(shared.commit(line)))),
            Dialect::Postgres => drop(runtime.spawn(shared.commit(line))),
        }
    }

    /// Ends the transaction of the database and tells everybody how.
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
                // SQLite keeps a transaction open whose commit failed; a server's connection may be anywhere.
                line.connection = None;
            }
        }
        for Done { hints, told } in done {
            let hints = hints.into_iter().filter(|_| ended.is_ok());
            // Nobody listening is fine: rows are the truth. So is nobody waiting.
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

/// Does what SQLite does without ever waiting for another task.
fn at_once(work: impl Future<Output = ()>) {
    let done = work.now_or_never();
    debug_assert!(done.is_some(), "SQLite answers where it is asked");
}

/// Somebody who waits for a turn.
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
    /// Whoever gives up waiting may have been the one to whom a group was left.
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
