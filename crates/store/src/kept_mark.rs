//! The mark of this process: every commit raises it, and a commit that does not raise it stops changes. `history.rs` says
//! what a mark is for.

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
    database::Connection,
    dialect::Dialect,
    error::StoreError,
    mark::{Mark, MarkFile},
    query::{Value, get_blob, get_count, get_int, int, text},
};

/// Setting that marks a history that went back and awaits a decision: the time of the newest evidence, and the reason.
pub(crate) const WENT_BACK: &str = "history.went_back";
/// Prefix of the name of a process's number in the table `streams`.
pub(crate) const NUMBER: &str = "history/";
/// Selects a setting's value.
pub(crate) const GET: &str = "select name, value from settings where name = $1";
/// Inserts a setting unless it exists.
pub(crate) const PUT: &str = "insert into settings (name, value) values ($1, $2) on conflict do nothing";

/// The numbers that a commit of this process reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitNumbers {
    number: u64,
    audit: u64,
}

/// The state of the history as this process knows it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct History(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kept: OnceLock<KeptMark>,
    pub(crate) went_back: OnceLock<WentBack>,
}

/// The reason why changes are stopped.
#[derive(Clone)]
pub(crate) struct WentBack {
    pub(crate) why: String,
    /// The time of the newest evidence that history went back.
    pub(crate) latest: Timestamp,
}

pub(crate) struct KeptMark {
    pub(crate) mark: Mutex<MarkFile>,
    /// The name of this process's number in the store.
    pub(crate) number: String,
    pub(crate) generation: u64,
    pub(crate) is_dirty: AtomicBool,
    pub(crate) raised: Notify,
    pub(crate) is_failing: AtomicBool,
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
    pub(crate) fn stop(&self, why: String, latest: Timestamp) -> StoreError {
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
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some(kept) = self.0.kept.get() else { return Ok(()) };
        if !kept.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let file = kept.mark.lock().unwrap_or_else(PoisonError::into_inner).file();
        file.sync_data().inspect_err(|_| kept.is_dirty.store(true, Ordering::Release))
    }
}

/// Describes the commits that are missing from a store that has `number` commits of the mark's process.
pub(crate) fn missing(mark: &Mark, number: u64, audit: (u64, Option<Timestamp>)) -> String {
    let commits = mark.number.saturating_sub(number);
    let missing = if commits == 1 { "1 commit".to_owned() } else { format!("{commits} commits") };
    let is = if commits == 1 { "is" } else { "are" };
    format!("{} {missing} of this process {is} missing", missing_since(mark, audit))
}

pub(crate) fn missing_since(mark: &Mark, (audit, at): (u64, Option<Timestamp>)) -> String {
    let at = at.map(|at| format!(" of {at}")).unwrap_or_default();
    format!(
        "the store ends at audit record {audit}{at}, but this process acknowledged a change at {}, audit record {}.",
        mark.at, mark.audit
    )
}

pub(crate) fn number_of(mark: Uuid) -> String {
    format!("{NUMBER}{mark}")
}

pub(crate) fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0)
}

pub(crate) fn encode_went_back(latest: Timestamp, why: &str) -> Value {
    Value::Blob(format!("{} {why}", millis(latest)).into_bytes())
}

pub(crate) fn went_back_reason(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split_once(' ').map_or(text.as_ref(), |(_, why)| why).to_owned()
}
