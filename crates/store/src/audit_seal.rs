//! Seals of the audit: append-only, numbered without gaps, each after the audit records that it covers.
//!
//! Deliberately absent: what a digest covers and who signs it (`engine`, `trust`).

use gpuaas_model::Timestamp;

use crate::{
    error::StoreError,
    page::Page,
    query::{Row, Value, get_count, get_int, get_text, int, text},
    record::AuditSealRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Appends a seal. Fails with [`StoreError::Stale`] if the newest seal is not the one that it continues.
    pub async fn insert_audit_seal(&mut self, seal: &AuditSealRecord) -> Result<(), StoreError> {
        let is_next = match self.newest_audit_seal().await? {
            Some(newest) => {
                (newest.number + 1, newest.last + 1, &newest.digest) == (seal.number, seal.first, &seal.previous)
            }
            None => seal.number == 1,
        };
        if !is_next {
            return Err(StoreError::Stale { what: "audit seal" });
        }
        let sql = "insert into audit_seals \
                   (number, first_sequence, last_sequence, records, at, previous, digest, key_id, signature) \
                   values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let values = vec![
            int(seal.number),
            int(seal.first),
            int(seal.last),
            int(seal.records),
            Value::Int(seal.at.as_millis()),
            text(&seal.previous),
            text(&seal.digest),
            text(&seal.key_id),
            text(&seal.signature),
        ];
        self.execute(sql, values).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the newest seal; `None` before the first.
    pub async fn newest_audit_seal(&mut self) -> Result<Option<AuditSealRecord>, StoreError> {
        let sql = "select * from audit_seals where number > 0 order by number desc limit 1";
        self.row(sql, Vec::new()).await?.map(|row| seal(&row)).transpose()
    }

    /// Returns seals with a number above `after`, oldest first, at most `limit`. A row that is no seal is returned
    /// without one, because a verification must report it.
    pub async fn chained_seals(&mut self, after: u64, limit: u32) -> Result<Vec<ChainedSeal>, StoreError> {
        let sql = "select * from audit_seals where number > $1 order by number limit $2";
        let limit = Value::Int(i64::from(limit.min(Page::LIMIT_MAX)));
        self.rows(sql, vec![int(after), limit]).await?.iter().map(chained).collect()
    }
}

/// A seal as a link of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedSeal {
    /// The number of the row; [`u64::MAX`] if it has none.
    pub number: u64,
    /// The seal; `None` if the row cannot be read as one.
    pub seal: Option<AuditSealRecord>,
}

fn chained(row: &Row) -> Result<ChainedSeal, StoreError> {
    // SQLite also keeps a text in a column of numbers, and sorts it behind all of them.
    let number = get_count(row, "number").unwrap_or(u64::MAX);
    match seal(row) {
        Ok(seal) => Ok(ChainedSeal { number, seal: Some(seal) }),
        Err(StoreError::Corrupt(_)) => Ok(ChainedSeal { number, seal: None }),
        Err(error) => Err(error),
    }
}

pub(crate) fn seal(row: &Row) -> Result<AuditSealRecord, StoreError> {
    Ok(AuditSealRecord {
        number: get_count(row, "number")?,
        first: get_count(row, "first_sequence")?,
        last: get_count(row, "last_sequence")?,
        records: get_count(row, "records")?,
        at: Timestamp::from_millis(get_int(row, "at")?),
        previous: get_text(row, "previous")?,
        digest: get_text(row, "digest")?,
        key_id: get_text(row, "key_id")?,
        signature: get_text(row, "signature")?,
    })
}
