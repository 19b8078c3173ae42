//! Reads records that carry a code and writes them with one, as `record_verifier.rs` specifies.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::broadcast;

use crate::{
    error::StoreError,
    page::Page,
    query::{Row, Value, get_text},
    record_verifier::{ForgedRow, RecordProof},
    select::Select,
    store::{Reader, Store, Tx},
};

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
