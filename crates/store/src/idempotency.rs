//! Remembered answers to requests with an idempotency key.

use gpuaas_model::{Timestamp, TokenId};

use crate::{
    error::StoreError,
    query::{Value, document, text},
    record::IdempotencyRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Remembers an answer; the first one under a key stays.
    pub async fn put_idempotency(&mut self, answer: &IdempotencyRecord) -> Result<(), StoreError> {
        let answer = self.answer_sealed_now(answer).await?;
        let values =
            vec![text(answer.token), text(&answer.key), Value::Int(answer.created_at.as_millis()), document(&answer)?];
        let sql =
            "insert into idempotency (token_id, key, created_at, doc) values ($1, $2, $3, $4) on conflict do nothing";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// The answer with its body under the sealing key that is in use.
    pub(crate) async fn answer_sealed_now(
        &mut self,
        answer: &IdempotencyRecord,
    ) -> Result<IdempotencyRecord, StoreError> {
        let mut answer = answer.clone();
        if let Ok(sealed) = hex::decode(&answer.body) {
            answer.body = hex::encode(self.sealed_now(&answer.sealed_for(), &sealed).await?);
        }
        Ok(answer)
    }

    /// Forgets answers from before `at`.
    pub async fn purge_idempotency(&mut self, at: Timestamp) -> Result<u64, StoreError> {
        self.execute("delete from idempotency where created_at < $1", vec![Value::Int(at.as_millis())]).await
    }
}

impl Reader {
    /// The answer under that key, if it is remembered.
    pub async fn idempotency(&mut self, token: TokenId, key: &str) -> Result<Option<IdempotencyRecord>, StoreError> {
        self.find(
            "select token_id, key, doc from idempotency where token_id = $1 and key = $2",
            vec![text(token), text(key)],
        )
        .await
    }
}
