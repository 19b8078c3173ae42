//! Detects a store that lost acknowledged changes ("history went back"); such a store refuses changes until a person
//! decides.
//!
//! Each process that keeps a [`MarkFile`] has its own number in the store. Each of its commits raises the number in the
//! same transaction, and the mark is raised before the caller gets success. If the store's number is lower than the
//! mark, or the next commit does not raise it above the mark, history went back. Because every process has its own
//! number, commits of other replicas cannot hide missing ones.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use gpuaas_model::{Clock, Timestamp};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    audit,
    database::Connection,
    dialect::Dialect,
    dump::{RESTORED, raise_fences},
    error::StoreError,
    inspect::{self, PLATFORM},
    mark::{Mark, MarkFile},
    query::{Value, get_blob, get_count, get_int, int, text},
    store::{Reader, Store, StoreOptions, Tx},
};

/// Setting with the generation of the history, a time in milliseconds. While it is set, processes keep marks.
pub const GENERATION: &str = "history.generation";
/// Setting that marks a history that went back and awaits a decision: the time of the newest evidence, and the reason.
const WENT_BACK: &str = "history.went_back";

/// Prefix of the name of a process's number in the table `streams`.
const NUMBER: &str = "history/";

/// The numbers that a commit of this process reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitNumbers {
    number: u64,
    audit: u64,
}

/// The state of the history as this process knows it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct History(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    kept: OnceLock<KeptMark>,
    went_back: OnceLock<WentBack>,
}

/// The reason why changes are stopped.
#[derive(Clone)]
struct WentBack {
    why: String,
    /// The time of the newest evidence that history went back.
    latest: Timestamp,
}

struct KeptMark {
    mark: Mutex<MarkFile>,
    /// The name of this process's number in the store.
    number: String,
    generation: u64,
    is_dirty: AtomicBool,
    raised: Notify,
    is_failing: AtomicBool,
}

/// The history as recorded in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPoint {
    /// The control plane's id; `None` in a store that no control plane has used.
    pub control_plane: Option<String>,
    /// The generation; `None` if no process has kept a mark yet.
    pub generation: Option<u64>,
    /// The number that belongs to the given mark; 0 if there is none.
    pub number: u64,
    /// The number of the last audit record, and when it was written.
    pub audit: (u64, Option<Timestamp>),
    /// The reason why changes are stopped; `None` if they are not.
    pub went_back: Option<String>,
    /// Whether a person has restored a backup or accepted a history that went back, and no start since has ended the
    /// credentials yet.
    pub is_restored_or_accepted: bool,
}

/// The result of comparing a store with a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The store has every commit that the mark records.
    Continues,
    /// The mark gives no evidence: it belongs to an earlier generation, or no commit was ever acknowledged under it.
    Inconclusive,
    /// The store belongs to another control plane; the text names both.
    OtherControlPlane(String),
    /// The store lacks acknowledged commits; the text describes them.
    WentBack(String),
}

impl History {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, kept: OnceLock::new(), went_back: OnceLock::new() }))
    }

    /// Fails while changes are stopped.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.0.went_back.get().map_or(Ok(()), |back| Err(StoreError::HistoryRolledBack(back.why.clone())))
    }

    /// Raises this process's number in the transaction that is about to be committed. `changed_before` is the number of
    /// rows that had been changed over this connection when the transaction began. Returns `None` if no mark is kept or
    /// nothing was changed.
    pub(crate) async fn count(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        changed_before: u64,
    ) -> Result<Option<CommitNumbers>, StoreError> {
        let Some(kept) = self.0.kept.get() else { return Ok(None) };
        self.check()?;
        let values = vec![text(&kept.number), text(WENT_BACK), int(changed_before)];
        let Some(row) = connection.rows(dialect.count_commit(), values, 1).await?.pop() else { return Ok(None) };
        if get_int(&row, "stops")? > 0 {
            let found = connection.rows(GET, vec![text(WENT_BACK)], 1).await?;
            let value = found.first().map_or(Ok(Vec::new()), |row| get_blob(row, "value"))?;
            return Err(self.stop(went_back_reason(&value), self.0.clock.now()));
        }
        let counted = CommitNumbers { number: get_count(&row, "number")?, audit: get_count(&row, "audit")? };
        let mark = kept.mark.lock().unwrap_or_else(PoisonError::into_inner).mark().clone();
        if counted.number > mark.number {
            return Ok(Some(counted));
        }
        let why = missing(&mark, counted.number.saturating_sub(1), (counted.audit, None));
        Err(self.stop(why, mark.at))
    }

    /// Raises the mark for a finished commit, before its callers get success.
    pub(crate) fn acknowledge(&self, counted: Option<CommitNumbers>) {
        let (Some(kept), Some(CommitNumbers { number, audit })) = (self.0.kept.get(), counted) else { return };
        let mut mark = kept.mark.lock().unwrap_or_else(PoisonError::into_inner);
        // The commit is durable, and an older mark remains true.
        match mark.raise(number, audit, self.0.clock.now()) {
            Ok(()) => kept.is_failing.store(false, Ordering::Relaxed),
            Err(error) if !kept.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::error!(%error, "the high-water mark cannot be written: a loss of changes may go undetected");
            }
            Err(_) => {}
        }
        if !kept.is_dirty.swap(true, Ordering::AcqRel) {
            kept.raised.notify_one();
        }
    }

    /// Stops changes of this process. Returns the error with which they are refused.
    fn stop(&self, why: String, latest: Timestamp) -> StoreError {
        if self.0.went_back.set(WentBack { why: why.clone(), latest }).is_ok() {
            tracing::error!(
                why,
                "history went back: changes are refused until an operator decides; see `gpuaas server accept-history`"
            );
        }
        StoreError::HistoryRolledBack(self.0.went_back.get().map_or(why, |back| back.why.clone()))
    }

    /// Records in the store that history went back, for other processes and for the next start of this one. The record
    /// is written only to the store that went back, so replacing it with the right one leaves nothing to decide.
    pub(crate) async fn record_went_back(&self, connection: &mut Connection, dialect: Dialect) {
        let Some(WentBack { why, latest }) = self.0.went_back.get() else { return };
        let left = async {
            connection.run("rollback").await?;
            connection.run(dialect.begin()).await?;
            connection.execute(PUT, vec![text(WENT_BACK), encode_went_back(*latest, why)]).await?;
            connection.run("commit").await
        };
        if let Err(error) = left.await {
            tracing::error!(%error, "the store could not record that history went back");
        }
    }

    /// Makes the mark durable if it was raised since the last call. May block.
    fn sync(&self) -> io::Result<()> {
        let Some(kept) = self.0.kept.get() else { return Ok(()) };
        if !kept.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let file = kept.mark.lock().unwrap_or_else(PoisonError::into_inner).file();
        file.sync_data().inspect_err(|_| kept.is_dirty.store(true, Ordering::Release))
    }
}

/// Selects a setting's value.
const GET: &str = "select name, value from settings where name = $1";
/// Inserts a setting unless it exists.
const PUT: &str = "insert into settings (name, value) values ($1, $2) on conflict do nothing";

impl Store {
    /// Raises this mark with every commit from now on, and stops changes if the store's number does not exceed it.
    pub fn keep_mark(&self, mark: MarkFile) {
        let (number, generation) = (number_of(mark.mark().id), mark.mark().generation);
        let (is_dirty, is_failing) = (AtomicBool::new(true), AtomicBool::new(false));
        let kept = KeptMark { mark: Mutex::new(mark), number, generation, is_dirty, raised: Notify::new(), is_failing };
        // A process keeps one mark: a second call has no effect.
        let _ = self.history.0.kept.set(kept);
    }

    /// Returns as soon as the mark was raised and is not durable yet; never returns if no mark is kept. For one caller
    /// at a time.
    pub async fn mark_raised(&self) {
        match self.history.0.kept.get() {
            Some(kept) if kept.is_dirty.load(Ordering::Acquire) => {}
            Some(kept) => kept.raised.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Makes the mark durable if it was raised since the last call. May block.
    pub fn sync_mark(&self) -> io::Result<()> {
        self.history.sync()
    }

    /// Returns the reason why changes are stopped; `None` if they are not.
    pub fn history_rolled_back(&self) -> Option<String> {
        self.history.0.went_back.get().map(|back| back.why.clone())
    }

    /// Fails while changes are stopped. Call it before acting on rows that may have gone back.
    pub fn check_history(&self) -> Result<(), StoreError> {
        self.history.check()
    }

    /// Stops changes here and, through a row, in every other process, because evidence dated `latest` shows that
    /// history went back.
    pub async fn stop_changes(&self, why: &str, latest: Timestamp) -> Result<(), StoreError> {
        let stopped = async {
            let mut turn = self.writer.acquire().await?;
            if self.history.0.kept.get().is_none() {
                turn.connection()?.execute(PUT, vec![text(WENT_BACK), encode_went_back(latest, why)]).await?;
                return turn.commit(Vec::new()).await;
            }
            // From here on every commit fails, and the first one that does records the reason in the store.
            self.history.stop(why.to_owned(), latest);
            turn.commit(Vec::new()).await
        };
        stopped.await.or_else(|error| match error {
            StoreError::HistoryRolledBack(_) => Ok(()),
            error => Err(error),
        })
    }
}

impl Tx {
    /// Makes processes keep marks from now on. Returns the generation: the existing one, or `first`.
    pub async fn begin_marks(&mut self, first: u64) -> Result<u64, StoreError> {
        let kept = self.put_setting_if_absent(GENERATION, first.to_string().as_bytes()).await?;
        generation(&kept)
    }

    /// Accepts the rows as they are, whatever is missing: raises every fence above any value that nodes can have seen,
    /// begins the next generation, and makes the next start end all credentials. Writes no audit record.
    pub async fn begin_next_generation(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let before = self.setting(GENERATION).await?.map_or(Ok(0), |kept| generation(&kept))?;
        let evidence_at = self.setting(WENT_BACK).await?.map_or(0, |value| latest_evidence(&value));
        let next = millis(now).max(before.max(evidence_at) + 1);
        raise_fences(self, now).await?;
        self.remove_setting(WENT_BACK).await?;
        self.remove_setting(GENERATION).await?;
        self.put_setting_if_absent(GENERATION, next.to_string().as_bytes()).await?;
        self.put_setting_if_absent(RESTORED, now.to_string().as_bytes()).await?;
        Ok(())
    }

    /// Deletes the number of a mark that was replaced.
    pub async fn delete_mark(&mut self, id: Uuid) -> Result<(), StoreError> {
        self.execute("delete from streams where stream = $1", vec![text(number_of(id))]).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the generation of the mark that this process keeps.
    pub fn history_generation(&self) -> Option<u64> {
        self.history.0.kept.get().map(|kept| kept.generation)
    }

    /// Returns the history as recorded in the store, with the number of the given mark.
    pub async fn history(&mut self, mark: Option<Uuid>) -> Result<HistoryPoint, StoreError> {
        point(self.connection()?, mark).await
    }
}

impl StoreOptions {
    /// Like [`Reader::history`], without opening the store: creates and changes nothing. Returns `None` if the tables
    /// do not exist.
    pub async fn history(&self, mark: Option<Uuid>) -> Result<Option<HistoryPoint>, StoreError> {
        let Some(mut connection) = self.open_to_read().await? else { return Ok(None) };
        let tables = inspect::tables(&mut connection, self.check()?).await?;
        if !["settings", "streams", "audit"].iter().all(|name| tables.iter().any(|table| table == name)) {
            return Ok(None);
        }
        point(&mut connection, mark).await.map(Some)
    }
}

async fn point(connection: &mut Connection, mark: Option<Uuid>) -> Result<HistoryPoint, StoreError> {
    let control_plane = setting(connection, PLATFORM).await?;
    let generation_kept = setting(connection, GENERATION).await?;
    let went_back = setting(connection, WENT_BACK).await?;
    let number = match mark {
        Some(id) => last_number(connection, number_of(id)).await?,
        None => 0,
    };
    let sql = "select sequence, at from audit order by sequence desc limit 1";
    let at = connection.rows(sql, Vec::new(), 1).await?.pop();
    let at = at.map(|row| get_int(&row, "at")).transpose()?.map(Timestamp::from_millis);
    Ok(HistoryPoint {
        control_plane: control_plane.map(|id| String::from_utf8_lossy(&id).into_owned()),
        generation: generation_kept.map(|kept| generation(&kept)).transpose()?,
        number,
        audit: (last_number(connection, audit::SEQUENCE.to_owned()).await?, at),
        went_back: went_back.map(|value| went_back_reason(&value)),
        is_restored_or_accepted: setting(connection, RESTORED).await?.is_some(),
    })
}

async fn setting(connection: &mut Connection, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let row = connection.rows(GET, vec![text(name)], 1).await?.pop();
    row.map(|row| get_blob(&row, "value")).transpose()
}

async fn last_number(connection: &mut Connection, stream: String) -> Result<u64, StoreError> {
    let sql = "select stream, last_sequence from streams where stream = $1";
    let row = connection.rows(sql, vec![text(stream)], 1).await?.pop();
    row.map_or(Ok(0), |row| get_count(&row, "last_sequence"))
}

impl HistoryPoint {
    /// Compares the store with the mark whose number this point contains.
    pub fn compare(&self, mark: &Mark) -> Comparison {
        if mark.number == 0 {
            return Comparison::Inconclusive;
        }
        if let Some(other) = self.control_plane.as_ref().filter(|id| **id != mark.control_plane) {
            return Comparison::OtherControlPlane(format!(
                "the mark belongs to control plane {}, and the store to {other}",
                mark.control_plane
            ));
        }
        let is_empty = self.control_plane.is_none();
        match self.generation.unwrap_or(0) {
            later if later > mark.generation => Comparison::Inconclusive,
            earlier if earlier < mark.generation && !is_empty => {
                let detail = "the store is older than a restore or an accepted history";
                Comparison::WentBack(format!("{}; {detail}", missing_since(mark, self.audit)))
            }
            _ if self.number >= mark.number && !is_empty => Comparison::Continues,
            _ => Comparison::WentBack(missing(mark, self.number, self.audit)),
        }
    }
}

/// Describes the commits that are missing from a store that has `number` commits of the mark's process.
fn missing(mark: &Mark, number: u64, audit: (u64, Option<Timestamp>)) -> String {
    let commits = mark.number.saturating_sub(number);
    let missing = if commits == 1 { "1 commit".to_owned() } else { format!("{commits} commits") };
    let is = if commits == 1 { "is" } else { "are" };
    format!("{} {missing} of this process {is} missing", missing_since(mark, audit))
}

fn missing_since(mark: &Mark, (audit, at): (u64, Option<Timestamp>)) -> String {
    let at = at.map(|at| format!(" of {at}")).unwrap_or_default();
    format!(
        "the store ends at audit record {audit}{at}, but this process acknowledged a change at {}, audit record {}.",
        mark.at, mark.audit
    )
}

fn number_of(mark: Uuid) -> String {
    format!("{NUMBER}{mark}")
}

/// Returns whether a counter is the number of a process.
pub(crate) fn is_number(stream: &str) -> bool {
    stream.strip_prefix(NUMBER).is_some_and(|mark| Uuid::try_parse(mark).is_ok())
}

fn generation(kept: &[u8]) -> Result<u64, StoreError> {
    let text = String::from_utf8_lossy(kept);
    text.parse().map_err(|_| StoreError::corrupt("settings", GENERATION, "value", format_args!("{text:?} is invalid")))
}

fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0)
}

fn encode_went_back(latest: Timestamp, why: &str) -> Value {
    Value::Blob(format!("{} {why}", millis(latest)).into_bytes())
}

fn latest_evidence(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).split(' ').next().and_then(|millis| millis.parse().ok()).unwrap_or(0)
}

fn went_back_reason(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split_once(' ').map_or(text.as_ref(), |(_, why)| why).to_owned()
}
