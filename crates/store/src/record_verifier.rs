//! Distinguishes rows that the platform wrote from rows that someone else wrote into the database: write access to the
//! database alone is not enough to forge a record.
//!
//! Guarantees: tokens, service accounts, task-signing keys, certificate authorities and enrollments are read only here.
//! A row whose authentication code is wrong is treated as absent wherever its record is read, and reported to subscribers.
//! The code covers the whole record, and the columns next to it must agree with it, so no genuine record can be found,
//! counted or revoked as another one. Exception: [`Reader::valid_token_count`] counts rows without verifying their codes.
//!
//! Deliberately absent: the key, which never enters the store, and protection against rollback: an older version of the
//! same row is genuine too. Records for which that matters carry their own end time. A service account whose deletion
//! was undone in this way has no valid token.

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

/// Refused rows buffered per subscriber. A slow subscriber misses older ones; the counter includes all.
const FORGED_ROWS_BUFFERED: usize = 64;

/// Computes and verifies the codes of records, and reseals values. The keys are held outside of the store and are
/// identified by their ids. Without an id, the active key is used.
pub trait RecordProof: Send + Sync {
    /// Returns the code of a record of the kind `kind` under the key `key`; `None` if that key is not held.
    fn code(&self, key: Option<&str>, kind: &str, fields: &[&[u8]]) -> Option<Vec<u8>>;
    /// Returns the id of the key under which `code` is valid for the record; `None` if there is none.
    fn proven_by(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> Option<String>;
    /// Returns the value that was sealed for `owner`, sealed under the key `key`; borrowed if it already is. `None` if
    /// that key is not held or no held key opens the value.
    fn reseal<'a>(&self, key: Option<&str>, owner: &[u8], sealed: &'a [u8]) -> Option<Cow<'a, [u8]>>;
}

/// A row that was refused because no held key proves that the platform wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgedRow {
    /// The table of the row.
    pub table: &'static str,
    /// The id in the row.
    pub id: String,
}

/// The proof of a store, and the subscribers to refused rows.
#[derive(Clone)]
pub(crate) struct RecordVerifier(Arc<State>);

struct State {
    proof: RwLock<Option<Arc<dyn RecordProof>>>,
    refused: AtomicU64,
    forged_rows: broadcast::Sender<ForgedRow>,
}

impl Default for RecordVerifier {
    fn default() -> Self {
        let forged_rows = broadcast::Sender::new(FORGED_ROWS_BUFFERED);
        Self(Arc::new(State { proof: RwLock::default(), refused: AtomicU64::new(0), forged_rows }))
    }
}

impl RecordVerifier {
    /// Returns the code of a document under the key `key`, as a column. `more` is further data that the code covers.
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

    /// Returns the id of the key that proves a row with the columns `id`, `doc` and `code`. Refuses a row that no key
    /// proves.
    pub(crate) fn proven_by(&self, table: &'static str, row: &Row, more: &[u8]) -> Result<Option<String>, StoreError> {
        let (doc, code) = (get_text(row, "doc")?, get_text(row, "code")?);
        let code = hex::decode(code).unwrap_or_default();
        let proven_by = self.proof().and_then(|proof| proof.proven_by(table, &[doc.as_bytes(), more], &code));
        if proven_by.is_none() {
            self.refuse(table, get_text(row, "id")?);
        }
        Ok(proven_by)
    }

    /// Returns the record of a row with the columns `id`, `doc` and `code`, if the platform wrote it. `more` is the
    /// data outside of the document that its code covers.
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

    /// Counts a refused row and reports it to subscribers.
    pub(crate) fn refuse(&self, table: &'static str, id: String) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        // Without subscribers the row is still counted.
        let _ = self.0.forged_rows.send(ForgedRow { table, id });
    }

    pub(crate) fn proof(&self) -> Option<Arc<dyn RecordProof>> {
        self.0.proof.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns whether the columns of a row agree with the record in its document.
type MatchesRow<T> = fn(&T, &Row) -> Result<bool, StoreError>;

impl Reader {
    /// Returns the records of rows with the columns `id`, `doc` and `code`. Refuses rows with a wrong code, and rows
    /// whose columns disagree with their record.
    pub(crate) fn verified_records<T: DeserializeOwned>(
        &self,
        table: &'static str,
        rows: impl IntoIterator<Item = Row>,
        matches_row: MatchesRow<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut records = Vec::new();
        for row in rows {
            let Some(record) = self.record_verifier.record(table, &row, &[])? else { continue };
            if matches_row(&record, &row)? {
                records.push(record);
            } else {
                self.record_verifier.refuse(table, get_text(&row, "id")?);
            }
        }
        Ok(records)
    }

    /// Returns a page of records in the order of their ids. Refused rows do not count towards the limit, so a page is
    /// shorter than its limit only at the end of the list.
    pub(crate) async fn verified_page<T: DeserializeOwned>(
        &mut self,
        table: &'static str,
        list: &Select,
        page: &Page,
        matches_row: MatchesRow<T>,
    ) -> Result<Vec<T>, StoreError> {
        let (mut records, mut next_page) = (Vec::new(), page.clone());
        loop {
            let rows = self.selected(list.clone().page(&next_page)).await?;
            next_page.after = rows.last().map(|row| get_text(row, "id")).transpose()?;
            let is_last = rows.len() < page.size();
            records.extend(self.verified_records(table, rows, matches_row)?);
            if is_last || records.len() >= page.size() {
                records.truncate(page.size());
                return Ok(records);
            }
        }
    }
}

impl Tx {
    /// Returns the document of a record and its code as two columns, under the key that this change sees as current.
    pub(crate) async fn doc_and_code(
        &mut self,
        table: &'static str,
        record: &impl Serialize,
        more: &[u8],
    ) -> Result<[Value; 2], StoreError> {
        let doc = serde_json::to_string(record).map_err(StoreError::not_serializable)?;
        let key = self.sealing_key_id().await?;
        let code = self.record_verifier.code(key.as_deref(), table, &doc, more)?;
        Ok([Value::Text(doc), code])
    }
}

impl Store {
    /// Sets the proof for this store and all its clones. Before this call, records that need a proof can be neither
    /// read nor written.
    pub fn set_record_proof(&self, proof: Arc<dyn RecordProof>) {
        *self.record_verifier.0.proof.write().unwrap_or_else(PoisonError::into_inner) = Some(proof);
    }

    /// Subscribes to rows that are refused from now on because no key proves that the platform wrote them.
    pub fn forged_rows(&self) -> broadcast::Receiver<ForgedRow> {
        self.record_verifier.0.forged_rows.subscribe()
    }

    /// Returns how often a row was refused since the store was opened.
    pub fn forged_rows_refused(&self) -> u64 {
        self.record_verifier.0.refused.load(Ordering::Relaxed)
    }
}
