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
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use gpuaas_model::Timestamp;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    audit,
    database::Connection,
    dump::{RESTORED, raise_fences},
    error::StoreError,
    inspect::{self, PLATFORM},
    kept_mark::{
        GET, KeptMark, NUMBER, PUT, WENT_BACK, encode_went_back, millis, missing, missing_since, number_of,
        went_back_reason,
    },
    mark::{Mark, MarkFile},
    options::StoreOptions,
    query::{get_blob, get_count, get_int, text},
    store::{Reader, Store, Tx},
    writer::Announced,
};

/// Setting with the generation of the history, a time in milliseconds. While it is set, processes keep marks.
pub const GENERATION: &str = "history.generation";

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
                return turn.commit(Announced::default()).await;
            }
            // From here on every commit fails, and the first one that does records the reason in the store.
            self.history.stop(why.to_owned(), latest);
            turn.commit(Announced::default()).await
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

/// Returns whether a counter is the number of a process.
pub(crate) fn is_number(stream: &str) -> bool {
    stream.strip_prefix(NUMBER).is_some_and(|mark| Uuid::try_parse(mark).is_ok())
}

fn generation(kept: &[u8]) -> Result<u64, StoreError> {
    let text = String::from_utf8_lossy(kept);
    text.parse().map_err(|_| StoreError::corrupt("settings", GENERATION, "value", format_args!("{text:?} is invalid")))
}

fn latest_evidence(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).split(' ').next().and_then(|millis| millis.parse().ok()).unwrap_or(0)
}
