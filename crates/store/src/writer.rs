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
    sync::{Mutex, Notify, OwnedMutexGuard, broadcast, oneshot},
    time::timeout,
};
use uuid::Uuid;

use crate::{
    counts::Counters,
    damage::Damage,
    database::{Connection, TURN_WAIT_MAX},
    dialect::Dialect,
    disk_space::DiskFull,
    error::StoreError,
    hint::{self, Change},
    kept_mark::{CommitNumbers, History},
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
pub(crate) struct CommitObservers {
    pub(crate) changes: broadcast::Sender<Change>,
    /// Notified about every commit with an audit record.
    pub(crate) audit_written: Arc<Notify>,
    /// The id under which hints are announced to other processes; `None` without other processes.
    pub(crate) hint_origin: Option<Uuid>,
    pub(crate) disk_full: DiskFull,
    pub(crate) damage: Damage,
    pub(crate) counters: Counters,
    pub(crate) history: History,
}

struct Shared {
    dialect: Dialect,
    url: String,
    state: Arc<Mutex<WriterState>>,
    /// Number of changes that wait for a turn.
    waiting: AtomicUsize,
    observers: CommitObservers,
    /// Whether commits run on the caller's thread and may block it; only in a simulation.
    commits_inline: AtomicBool,
}

/// State that each change hands to the next.
#[derive(Default)]
struct WriterState {
    connection: Option<Connection>,
    /// The open database transaction.
    group: Option<Group>,
}

#[derive(Default)]
struct Group {
    /// When the first change of the group was done and began to wait for the commit.
    waits_since: Option<Instant>,
    /// How the last savepoint ended, until that was sent to the database.
    last_end: Option<SavepointEnd>,
    pending: Vec<PendingChange>,
    /// Rows changed over the connection before the group began.
    changed_before: u64,
}

/// The outcome of a change's savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SavepointEnd {
    Released,
    RolledBack,
}

/// What a change announces after its commit.
#[derive(Default)]
pub(crate) struct Announced {
    pub(crate) hints: Vec<Change>,
    /// Whether audit records are part of the change.
    pub(crate) has_audit: bool,
}

/// A change that waits for the commit.
struct PendingChange {
    announced: Announced,
    outcome: oneshot::Sender<Result<(), StoreError>>,
}

/// A change's turn: exclusive use of the writing connection, within one savepoint.
pub(crate) struct WriteTurn {
    shared: Arc<Shared>,
    state: Option<OwnedMutexGuard<WriterState>>,
    /// The error of the first failed statement; the change cannot be committed after it.
    failed: Option<StoreError>,
}

impl Writer {
    pub(crate) fn new(observers: CommitObservers, dialect: Dialect, url: String) -> Self {
        let (state, waiting, commits_inline) = (Arc::default(), AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { dialect, url, state, waiting, observers, commits_inline }) }
    }

    /// Waits for a turn and begins a change. Fails while changes are stopped because history went back, until a person
    /// decides.
    pub(crate) async fn acquire(&self) -> Result<WriteTurn, StoreError> {
        self.shared.observers.history.check()?;
        let mut waiting = WaitingChange::new(self.shared.clone());
        let state = timeout(TURN_WAIT_MAX, self.shared.state.clone().lock_owned()).await;
        let line = state.map_err(|_| StoreError::Busy)?;
        waiting.set_has_turn();
        let turn = WriteTurn { shared: self.shared.clone(), state: Some(line), failed: None };
        match self.shared.dialect {
            Dialect::Sqlite => turn.begin().await,
            // In a separate task, because the caller may be cancelled: between two statements the savepoint would be
            // undefined.
            Dialect::Postgres => {
                let begun = tokio::spawn(turn.begin());
                begun.await.map_err(|_| StoreError::Unreachable("the process is shutting down".to_owned()))?
            }
        }
    }

    /// Runs commits on the caller's thread, before anything else happens.
    #[cfg(feature = "simulation")]
    pub(crate) fn commit_inline(&self) {
        self.shared.commits_inline.store(true, Ordering::Relaxed);
    }

    /// Returns whether no change is open or being committed.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.state.try_lock().is_ok_and(|state| state.group.is_none())
    }

    /// Closes the connection after the last turn has ended and its group is committed.
    pub(crate) async fn close(&self) {
        let mut state = self.shared.state.clone().lock_owned().await;
        while state.group.is_some() {
            self.shared.clone().commit(state).await;
            state = self.shared.state.clone().lock_owned().await;
        }
        state.connection = None;
    }
}

impl WriteTurn {
    /// Returns the writing connection; fails if it was lost during this change.
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        let connection = self.state.as_mut().and_then(|state| state.connection.as_mut());
        connection.ok_or_else(|| StoreError::Unreachable("the connection was lost during this change".to_owned()))
    }

    /// Records a failed statement, so that the change cannot be committed.
    pub(crate) fn record_failure(&mut self, error: &StoreError) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// Makes the change durable, perhaps together with others, then sends its hints.
    pub(crate) async fn commit(mut self, announced: Announced) -> Result<(), StoreError> {
        if let Some(failed) = &self.failed {
            // PostgreSQL would turn this commit into a rollback without an error; SQLite would commit the other
            // statements.
            if let StoreError::Damaged { .. } = failed {
                return Err(failed.clone());
            }
            return Err(StoreError::Database("a statement of this change failed".to_owned()));
        }
        let (outcome, receiver) = oneshot::channel();
        let mut state = self.state.take().ok_or(StoreError::Busy)?;
        if let Some(group) = &mut state.group {
            group.last_end = Some(SavepointEnd::Released);
            group.waits_since.get_or_insert_with(Instant::now);
            group.pending.push(PendingChange { announced, outcome });
        }
        self.shared.release(state);
        receiver.await.unwrap_or_else(|_| Err(StoreError::Unreachable("the process is shutting down".to_owned())))
    }

    /// Returns the turn with its savepoint begun.
    async fn begin(mut self) -> Result<Self, StoreError> {
        let Some(state) = self.state.as_mut() else { return Err(StoreError::Busy) };
        let begun = match state.group.is_some() {
            true => state.join(self.shared.dialect).await,
            false => state.begin(self.shared.dialect, &self.shared.url).await,
        };
        match begun {
            Ok(()) => Ok(self),
            Err(error) => {
                // The state of savepoints is unknown now, so the whole transaction is given up.
                state.fail(&error);
                Err(error)
            }
        }
    }
}

impl Drop for WriteTurn {
    /// Rolls back an uncommitted change.
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if let Some(group) = &mut state.group {
            group.last_end = Some(SavepointEnd::RolledBack);
        }
        if state.connection.as_ref().is_none_or(|connection| !connection.is_in_transaction()) {
            // The earlier changes of the same transaction are lost with it.
            let why = self.failed.take().unwrap_or_else(|| StoreError::Unreachable("the transaction ended".to_owned()));
            state.fail(&why);
        }
        self.shared.release(state);
    }
}

impl WriterState {
    /// Begins a savepoint in the open transaction.
    async fn join(&mut self, dialect: Dialect) -> Result<(), StoreError> {
        let left = self.group.as_mut().and_then(|group| group.last_end.take());
        let lost = || StoreError::Unreachable("the connection was lost".to_owned());
        let connection = self.connection.as_mut().ok_or_else(lost)?;
        connection.run_kept(dialect.next_savepoint(left == Some(SavepointEnd::RolledBack))).await
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
        for change in self.group.take().into_iter().flat_map(|group| group.pending) {
            // The caller may have been cancelled.
            let _ = change.outcome.send(Err(why.clone()));
        }
    }
}

impl Shared {
    /// Passes the turn on. Commits the group first, unless another change waits and may join it.
    fn release(self: &Arc<Self>, state: OwnedMutexGuard<WriterState>) {
        let Some(group) = &state.group else { return };
        let age = group.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        let may_grow = group.pending.len() < GROUP_MAX && age < GROUP_AGE_MAX;
        if may_grow && self.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        self.dispatch_commit(state);
    }

    /// Commits the group where blocking is allowed.
    fn dispatch_commit(self: &Arc<Self>, state: OwnedMutexGuard<WriterState>) {
        let shared = self.clone();
        let is_empty = state.group.as_ref().is_none_or(|group| group.pending.is_empty());
        if self.dialect == Dialect::Sqlite && (is_empty || self.commits_inline.load(Ordering::Relaxed)) {
            run_inline(shared.commit(state));
            return;
        }
        // Without a runtime the process is ending, and the database rolls back the open transaction.
        let Ok(runtime) = Handle::try_current() else { return };
        match self.dialect {
            Dialect::Sqlite => drop(runtime.spawn_blocking(move || run_inline(shared.commit(state)))),
            Dialect::Postgres => drop(runtime.spawn(shared.commit(state))),
        }
    }

    /// Ends the database transaction and reports the outcome to every change in it.
    async fn commit(self: Arc<Self>, mut state: OwnedMutexGuard<WriterState>) {
        let Some(mut group) = state.group.take() else { return };
        let pending = std::mem::take(&mut group.pending);
        let ended = match state.connection.as_mut() {
            Some(connection) => self.end(connection, &group, &pending).await,
            None => Err(StoreError::Unreachable("the connection was lost".to_owned())),
        };
        match &ended {
            Ok(counted) => {
                self.observers.counters.count_commit(pending.len());
                self.observers.history.acknowledge(*counted);
            }
            Err(error) => {
                self.observers.disk_full.record(error);
                self.observers.damage.record(error);
                if let (StoreError::HistoryRolledBack(_), Some(connection)) = (error, state.connection.as_mut()) {
                    self.observers.history.record_went_back(connection, self.dialect).await;
                }
                // SQLite keeps a transaction open after a failed commit; on PostgreSQL the state is unknown.
                state.connection = None;
            }
        }
        for PendingChange { announced: Announced { hints, has_audit }, outcome } in pending {
            if has_audit && ended.is_ok() {
                self.observers.audit_written.notify_one();
            }
            let hints = hints.into_iter().filter(|_| ended.is_ok());
            // A lost hint is harmless because subscribers read rows; the caller may have been cancelled.
            hints.for_each(|hint| drop(self.observers.changes.send(hint)));
            let _ = outcome.send(ended.clone().map(drop));
        }
    }

    async fn end(
        &self,
        connection: &mut Connection,
        group: &Group,
        pending: &[PendingChange],
    ) -> Result<Option<CommitNumbers>, StoreError> {
        if pending.is_empty() {
            return connection.run_kept("rollback").await.map(|()| None);
        }
        if group.last_end == Some(SavepointEnd::RolledBack) {
            connection.run_kept(self.dialect.rollback_savepoint()).await?;
        }
        if let Some(origin) = self.observers.hint_origin {
            hint::announce(connection, origin, pending.iter().flat_map(|done| &done.announced.hints)).await?;
        }
        let counted = self.observers.history.count(connection, self.dialect, group.changed_before).await?;
        connection.run_kept("commit").await.map_err(StoreError::into_commit_error)?;
        Ok(counted)
    }
}

/// Runs work that completes without awaiting another task, as all work on SQLite does.
fn run_inline(work: impl Future<Output = ()>) {
    let result = work.now_or_never();
    debug_assert!(result.is_some(), "work on SQLite completes without waiting");
}

/// A change that waits for its turn.
struct WaitingChange {
    shared: Arc<Shared>,
    has_turn: bool,
}

impl WaitingChange {
    fn new(shared: Arc<Shared>) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self { shared, has_turn: false }
    }

    fn set_has_turn(&mut self) {
        self.has_turn = true;
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for WaitingChange {
    /// Passes the turn on if this was the last waiting change: a group may have been left open for it to commit.
    fn drop(&mut self) {
        if self.has_turn || self.shared.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let shared = self.shared.clone();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let state = shared.state.clone().lock_owned().await;
            shared.release(state);
        });
    }
}
