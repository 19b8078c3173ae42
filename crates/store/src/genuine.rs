//! Tells rows that the platform wrote from rows that somebody wrote past it: whoever may write to the database is not the platform.
//!
//! Guarantees: tokens, service accounts, task-signing keys, certificate authorities and enrollments are read here alone, and a row whose code does not
//! prove it is as good as absent, for every reader, and told to those who listen. The code covers the whole record, and the columns beside it must say
//! the same, so that no genuine record is found, counted or withdrawn as another.
//!
//! Deliberately absent: the key, which never enters the store; and time. An older state of the same row is genuine too: what a record must not go
//! back from has an end of its own. A service account whose deletion is undone this way has no valid token.

use std::{
    borrow::Cow,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::broadcast;

use crate::{
    error::StoreError,
    page::Page,
    query::{Row, Value, get_text},
    select::Select,
    store::{Reader, Store, Tx},
};

/// Refused rows that a slow listener may fall behind before it misses some; the count misses none.
const TOLD_KEPT: usize = 64;

/// Proves records, and seals values again. Made of keys that the store does not hold, and knows by their ids. Without an id, the active key
/// is used.
pub trait RecordProof: Send + Sync {
    /// The code of a record of that kind under the key of that id; `None` when that key is not held.
    fn code(&self, key: Option<&str>, kind: &str, fields: &[&[u8]]) -> Option<Vec<u8>>;
    /// The id of the key under which `code` is the record's; `None` when it is none's.
    fn proven_by(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> Option<String>;
    /// What was sealed for `owner`, under the key of that id; borrowed when it is already. `None` when that key is not held or none opens the value.
    fn reseal<'a>(&self, key: Option<&str>, owner: &[u8], sealed: &'a [u8]) -> Option<Cow<'a, [u8]>>;
}

/// A row that was refused because nothing proves that the platform wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgedRow {
    /// The table.
    pub table: &'static str,
    /// The row's id, as far as it says one.
    pub id: String,
}

/// How a store proves records, and whom it tells of those that are not.
#[derive(Clone)]
pub(crate) struct Genuine(Arc<State>);

struct State {
    proof: RwLock<Option<Arc<dyn RecordProof>>>,
    refused: AtomicU64,
    told: broadcast::Sender<ForgedRow>,
}

impl Default for Genuine {
    fn default() -> Self {
        let told = broadcast::Sender::new(TOLD_KEPT);
        Self(Arc::new(State { proof: RwLock::default(), refused: AtomicU64::new(0), told }))
    }
}

impl Genuine {
    /// The code of a document under the key of that id, as a column.
    pub(crate) fn code(
        &self,
        key: Option<&str>,
        table: &'static str,
        doc: &str,
        more: &[u8],
    ) -> Result<Value, StoreError> {
        let code = self.proof().ok_or(StoreError::NoProof)?.code(key, table, &[doc.as_bytes(), more]);
        let missing = || StoreError::SealingKeyMissing { id: key.unwrap_or_default().to_owned() };
        Ok(Value::Text(hex::encode(code.ok_or_else(missing)?)))
    }

    /// The id of the key that proves a row with the columns `id`, `doc` and `code`. A row that none proves is refused.
    pub(crate) fn proven_by(&self, table: &'static str, row: &Row, more: &[u8]) -> Result<Option<String>, StoreError> {
        let (doc, code) = (get_text(row, "doc")?, get_text(row, "code")?);
        let code = hex::decode(code).unwrap_or_default();
        let proven_by = self.proof().and_then(|proof| proof.proven_by(table, &[doc.as_bytes(), more], &code));
        if proven_by.is_none() {
            self.refuse(table, get_text(row, "id")?);
        }
        Ok(proven_by)
    }

    /// The record of a row with the columns `id`, `doc` and `code`, if the platform wrote it; `more` is what its code covers beside the document.
    pub(crate) fn record<T: DeserializeOwned>(
        &self,
        table: &'static str,
        row: &Row,
        more: &[u8],
    ) -> Result<Option<T>, StoreError> {
        match self.proven_by(table, row, more)? {
            Some(_) => row.record("doc").map(Some),
            None => Ok(None),
        }
    }

    /// Counts a row that is not what it says, and tells it.
    pub(crate) fn refuse(&self, table: &'static str, id: String) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        // Nobody listening is fine: it is counted.
        let _ = self.0.told.send(ForgedRow { table, id });
    }

    pub(crate) fn proof(&self) -> Option<Arc<dyn RecordProof>> {
        self.0.proof.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the columns of a row agree with the record in its document.
type IsInItsRow<T> = fn(&T, &Row) -> Result<bool, StoreError>;

impl Reader {
    /// The records of rows with the columns `id`, `doc` and `code`. Refuses rows whose code is wrong, and rows whose columns disagree with their record.
    pub(crate) fn genuine_records<T: DeserializeOwned>(
        &self,
        table: &'static str,
        rows: impl IntoIterator<Item = Row>,
        is_in_its_row: IsInItsRow<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut records = Vec::new();
        for row in rows {
            let Some(record) = self.genuine.record(table, &row, &[])? else { continue };
            if is_in_its_row(&record, &row)? {
                records.push(record);
            } else {
                self.genuine.refuse(table, get_text(&row, "id")?);
            }
        }
        Ok(records)
    }

    /// A page of records of a list, in the order of their ids. Refused rows do not count towards the limit: a page is shorter than its limit only at
    /// the end of the list.
    pub(crate) async fn genuine_page<T: DeserializeOwned>(
        &mut self,
        table: &'static str,
        list: &Select,
        page: &Page,
        is_in_its_row: IsInItsRow<T>,
    ) -> Result<Vec<T>, StoreError> {
        let (mut records, mut rest) = (Vec::new(), page.clone());
        loop {
            let rows = self.selected(list.clone().page(&rest)).await?;
            rest.after = rows.last().map(|row| get_text(row, "id")).transpose()?;
            let is_last = rows.len() < page.size();
            records.extend(self.genuine_records(table, rows, is_in_its_row)?);
            if is_last || records.len() >= page.size() {
                records.truncate(page.size());
                return Ok(records);
            }
        }
    }
}

impl Tx {
    /// The document of a record and the code that proves it, as two columns, under the key that is in use as of this change.
    pub(crate) async fn proven(
        &mut self,
        table: &'static str,
        record: &impl Serialize,
        more: &[u8],
    ) -> Result<[Value; 2], StoreError> {
        let doc = serde_json::to_string(record).map_err(StoreError::unwritable)?;
        let key = self.sealing_key_id().await?;
        let code = self.genuine.code(key.as_deref(), table, &doc, more)?;
        Ok([Value::Text(doc), code])
    }
}

impl Store {
    /// Has this store, and every clone of it, prove its records from now on. Until then no record that needs a proof is read or written.
    pub fn prove_with(&self, proof: Arc<dyn RecordProof>) {
        *self.genuine.0.proof.write().unwrap_or_else(PoisonError::into_inner) = Some(proof);
    }

    /// Rows that are refused from now on because nothing proves that the platform wrote them.
    pub fn forged_rows(&self) -> broadcast::Receiver<ForgedRow> {
        self.genuine.0.told.subscribe()
    }

    /// How often such a row was refused since the store was opened.
    pub fn forged_rows_refused(&self) -> u64 {
        self.genuine.0.refused.load(Ordering::Relaxed)
    }
}
