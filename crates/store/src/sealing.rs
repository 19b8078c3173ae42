//! Tracks which sealing key is in use, and moves rows from one key to its successor.
//!
//! Guarantees: one row names the current key. Every sealed value and every record with a code is written under that
//! key, within the transaction that writes it, whichever key the writer considered current. A single pass over the
//! older rows, in order and in as many transactions as needed, therefore leaves nothing under the previous key. The
//! pass does not give a valid code to a record that had none.
//!
//! Deliberately absent: the keys ([`crate::RecordProof`]), and the decision to rotate (`engine`). The row that names
//! the key has no code of its own: if someone else writes an id there, no process holds that key, and changes stop as
//! they would if rows were removed.

use crate::{
    authority::{self, StoredAuthority},
    browser_session, enrollment,
    error::StoreError,
    hint::Change,
    query::{Row, Value, get_blob, get_count, get_text, text},
    record::IdempotencyRecord,
    sealing_record::{ResealPosition, SealingRecord, Table},
    service_account, sign_in_link,
    signing_key::{self, StoredSigningKey},
    store::{Reader, Tx},
    token,
};

/// All of these tables, in the order in which they are resealed.
const TABLES: [Table; 10] = [
    Table::Settings,
    Table::SigningKeys,
    Table::Authorities,
    Table::ServiceAccounts,
    Table::Tokens,
    Table::Enrollments,
    Table::Secrets,
    Table::Idempotency,
    Table::BrowserSessions,
    Table::SignInLinks,
];

impl Table {
    /// Selects up to `$2` rows after the row `$1`, in order, each with its id.
    const fn rows(self) -> &'static str {
        match self {
            Self::Settings => "select name as id, value from settings where name > $1 order by name limit $2",
            Self::SigningKeys => {
                "select key_id as id, seed, doc, code from signing_keys where key_id > $1 order by key_id limit $2"
            }
            Self::Authorities => "select id, sealed_key, doc, code from authorities where id > $1 order by id limit $2",
            Self::ServiceAccounts => "select id, doc, code from service_accounts where id > $1 order by id limit $2",
            Self::Tokens => "select id, doc, code from tokens where id > $1 order by id limit $2",
            Self::Enrollments => "select id, doc, code from enrollments where id > $1 order by id limit $2",
            Self::Secrets => "select id, sealed from secrets where id > $1 order by id limit $2",
            Self::Idempotency => {
                "select token_id || '/' || key as id, doc from idempotency where token_id || '/' || key > $1 \
                 order by token_id || '/' || key limit $2"
            }
            Self::BrowserSessions => "select id, doc, code from browser_sessions where id > $1 order by id limit $2",
            Self::SignInLinks => "select id, doc, code from sign_in_links where id > $1 order by id limit $2",
        }
    }

    /// Counts the rows after the row `$1`.
    const fn count(self) -> &'static str {
        match self {
            Self::Settings => "select count(*) as rows from settings where name > $1",
            Self::SigningKeys => "select count(*) as rows from signing_keys where key_id > $1",
            Self::Authorities => "select count(*) as rows from authorities where id > $1",
            Self::ServiceAccounts => "select count(*) as rows from service_accounts where id > $1",
            Self::Tokens => "select count(*) as rows from tokens where id > $1",
            Self::Enrollments => "select count(*) as rows from enrollments where id > $1",
            Self::Secrets => "select count(*) as rows from secrets where id > $1",
            Self::Idempotency => "select count(*) as rows from idempotency where token_id || '/' || key > $1",
            Self::BrowserSessions => "select count(*) as rows from browser_sessions where id > $1",
            Self::SignInLinks => "select count(*) as rows from sign_in_links where id > $1",
        }
    }

    /// Returns the tables that remain, each with the id of the last finished row.
    fn remaining(reached: Option<&ResealPosition>) -> impl Iterator<Item = (Self, String)> + use<> {
        let from = reached.and_then(|reached| TABLES.iter().position(|table| *table == reached.table)).unwrap_or(0);
        let first = reached.map(|reached| reached.after.clone()).unwrap_or_default();
        let after = std::iter::once(first).chain(std::iter::repeat(String::new()));
        TABLES.into_iter().skip(from).zip(after)
    }
}

impl Reader {
    /// Returns the sealing record; `None` before the first key was set.
    pub async fn sealing(&mut self) -> Result<Option<SealingRecord>, StoreError> {
        if let Some(known) = &self.sealing {
            return Ok((**known).clone());
        }
        let value = self.setting(SealingRecord::SETTING).await?;
        let read = |value: Vec<u8>| {
            serde_json::from_slice(&value)
                .map_err(|error| StoreError::corrupt("settings", SealingRecord::SETTING, "value", error))
        };
        let record: Option<SealingRecord> = value.map(read).transpose()?;
        self.sealing = Some(Box::new(record.clone()));
        Ok(record)
    }

    /// Returns how many rows remain before the current rotation can end; 0 without a rotation.
    pub async fn rows_to_reseal(&mut self) -> Result<u64, StoreError> {
        let Some(record) = self.sealing().await?.filter(|record| record.previous.is_some()) else { return Ok(0) };
        let mut left = 0;
        for (table, after) in Table::remaining(record.reached.as_ref()) {
            let row = self.row(table.count(), vec![text(after)]).await?;
            left += row.map_or(Ok(0), |row| get_count(&row, "rows"))?;
        }
        Ok(left)
    }
}

impl Tx {
    /// Sets the sealing record. This change writes everything that follows under its key.
    pub async fn put_sealing(&mut self, record: &SealingRecord) -> Result<(), StoreError> {
        let value = Value::Blob(serde_json::to_vec(record).map_err(StoreError::not_serializable)?);
        let sql = "insert into settings (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value";
        self.execute(sql, vec![text(SealingRecord::SETTING), value]).await?;
        self.sealing = Some(Box::new(Some(record.clone())));
        self.announced.hints.push(Change::Sealing);
        Ok(())
    }

    /// Moves the next rows, at most `rows_max`, to the current key. Returns whether no row remains.
    pub async fn reseal_rows(&mut self, rows_max: u32) -> Result<bool, StoreError> {
        let Some(mut record) = self.sealing().await?.filter(|record| record.previous.is_some()) else {
            return Ok(true);
        };
        let mut limit = i64::from(rows_max);
        for (table, mut after) in Table::remaining(record.reached.as_ref()) {
            let rows = self.rows(table.rows(), vec![text(&after), Value::Int(limit)]).await?;
            for row in &rows {
                after = get_text(row, "id")?;
                self.reseal_row(table, row, &after, &record.current).await?;
            }
            record.reached = Some(ResealPosition { table, after });
            limit -= i64::try_from(rows.len()).unwrap_or(i64::MAX);
            if limit <= 0 {
                self.put_sealing(&record).await?;
                return Ok(false);
            }
        }
        self.put_sealing(&record).await?;
        Ok(true)
    }

    /// Returns the id of the current key, as this change sees it.
    pub(crate) async fn sealing_key_id(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.sealing().await?.map(|record| record.current))
    }

    /// Returns a value sealed for `owner`, resealed under the current key. A value that no available key opens for that
    /// owner is returned unchanged and remains unreadable.
    pub(crate) async fn reseal_value(&mut self, owner: &[u8], sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let Some(proof) = self.record_verifier.proof().filter(|_| !sealed.is_empty()) else {
            return Ok(sealed.to_vec());
        };
        let key = self.sealing_key_id().await?;
        Ok(proof.reseal(key.as_deref(), owner, sealed).map_or_else(|| sealed.to_vec(), |sealed| sealed.into_owned()))
    }

    async fn reseal_row(&mut self, table: Table, row: &Row, id: &str, key: &str) -> Result<(), StoreError> {
        match table {
            Table::Settings => {
                let before = get_blob(row, "value")?;
                let value = self.reseal_value(id.as_bytes(), &before).await?;
                let sql = "update settings set value = $2 where name = $1";
                self.replace(sql, id, (value != before).then_some(Value::Blob(value))).await
            }
            Table::Secrets => {
                let before = get_blob(row, "sealed")?;
                let sealed = self.reseal_value(id.as_bytes(), &before).await?;
                let sql = "update secrets set sealed = $2 where id = $1";
                self.replace(sql, id, (sealed != before).then_some(Value::Blob(sealed))).await
            }
            Table::ServiceAccounts => {
                let code = self.new_code(service_account::TABLE, row, (&[], &[]), key)?;
                self.replace("update service_accounts set code = $2 where id = $1", id, code).await
            }
            Table::Tokens => {
                let code = self.new_code(token::TABLE, row, (&[], &[]), key)?;
                self.replace("update tokens set code = $2 where id = $1", id, code).await
            }
            Table::Enrollments => {
                let code = self.new_code(enrollment::TABLE, row, (&[], &[]), key)?;
                self.replace("update enrollments set code = $2 where id = $1", id, code).await
            }
            Table::BrowserSessions => {
                let code = self.new_code(browser_session::TABLE, row, (&[], &[]), key)?;
                self.replace("update browser_sessions set code = $2 where id = $1", id, code).await
            }
            Table::SignInLinks => {
                let code = self.new_code(sign_in_link::TABLE, row, (&[], &[]), key)?;
                self.replace("update sign_in_links set code = $2 where id = $1", id, code).await
            }
            Table::SigningKeys => self.reseal_signing_key(row, id, key).await,
            Table::Authorities => self.reseal_authority(row, id, key).await,
            Table::Idempotency => self.reseal_answer(row).await,
        }
    }

    async fn replace(&mut self, sql: &'static str, id: &str, value: Option<Value>) -> Result<(), StoreError> {
        if let Some(value) = value {
            self.execute(sql, vec![text(id), value]).await?;
        }
        Ok(())
    }

    /// Returns a new code under `key` for a row that an available key proves; `None` for a row that is already under
    /// `key` and for one that no key proves. `before` and `after` are the data outside of the document that the code
    /// covers.
    fn new_code(
        &self,
        table: &'static str,
        row: &Row,
        (before, after): (&[u8], &[u8]),
        key: &str,
    ) -> Result<Option<Value>, StoreError> {
        let Some(proven_by) = self.record_verifier.proven_by(table, row, before)? else { return Ok(None) };
        if proven_by == key && before == after {
            return Ok(None);
        }
        self.record_verifier.code(Some(key), table, &get_text(row, "doc")?, after).map(Some)
    }

    async fn reseal_signing_key(&mut self, row: &Row, id: &str, key: &str) -> Result<(), StoreError> {
        let before = get_blob(row, "seed")?;
        let seed = self.reseal_value(&StoredSigningKey::seal_owner(id), &before).await?;
        if let Some(code) = self.new_code(signing_key::TABLE, row, (&before, &seed), key)? {
            let sql = "update signing_keys set seed = $2, code = $3 where key_id = $1";
            self.execute(sql, vec![text(id), Value::Blob(seed), code]).await?;
        }
        Ok(())
    }

    async fn reseal_authority(&mut self, row: &Row, id: &str, key: &str) -> Result<(), StoreError> {
        let before = get_blob(row, "sealed_key")?;
        let sealed = self.reseal_value(&StoredAuthority::seal_owner(id), &before).await?;
        if let Some(code) = self.new_code(authority::TABLE, row, (&before, &sealed), key)? {
            let sql = "update authorities set sealed_key = $2, code = $3 where id = $1";
            self.execute(sql, vec![text(id), Value::Blob(sealed), code]).await?;
        }
        Ok(())
    }

    async fn reseal_answer(&mut self, row: &Row) -> Result<(), StoreError> {
        let before: IdempotencyRecord = row.record("doc")?;
        let after = self.resealed_answer(&before).await?;
        if after != before {
            let doc = serde_json::to_string(&after).map_err(StoreError::not_serializable)?;
            let sql = "update idempotency set doc = $3 where token_id = $1 and key = $2";
            self.execute(sql, vec![text(after.token), text(&after.key), Value::Text(doc)]).await?;
        }
        Ok(())
    }
}
