//! Distinguishes rows that the platform wrote from rows that someone else wrote into the database: write access to the
//! database alone is not enough to forge a record.
//!
//! Guarantees: tokens, service accounts, sessions of browsers with their sign-in links, task-signing keys, certificate
//! authorities and enrollments are read only here.
//! A row whose authentication code is wrong is treated as absent wherever its record is read, and reported to subscribers.
//! The code covers the whole record, and the columns next to it must agree with it, so no genuine record can be found,
//! counted or revoked as another one. Exception: [`crate::Reader::valid_token_count`] counts rows without verifying their codes.
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

use serde::de::DeserializeOwned;
use tokio::sync::broadcast;

use crate::{
    error::StoreError,
    query::{Row, Value, get_text},
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
pub(crate) struct RecordVerifier(pub(crate) Arc<State>);

pub(crate) struct State {
    pub(crate) proof: RwLock<Option<Arc<dyn RecordProof>>>,
    pub(crate) refused: AtomicU64,
    pub(crate) forged_rows: broadcast::Sender<ForgedRow>,
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
