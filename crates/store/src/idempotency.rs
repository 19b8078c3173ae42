//! Remembered answers to requests with an idempotency key.

use gpuaas_model::{Timestamp, TokenId};

use crate::{
    error::StoreError,
    query::{Value, document, text},
    record::IdempotencyRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Stores an answer. An existing answer under the same key is kept, unless it is older than `expired_before`.
    pub async fn put_idempotency(
        &mut self,
        answer: &IdempotencyRecord,
        expired_before: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let answer = self.resealed_answer(answer).await?;
        let values = vec![
            text(answer.token),
            text(&answer.key),
            Value::Int(answer.created_at.as_millis()),
            document(&answer)?,
            Value::Int(expired_before.map_or(i64::MIN, Timestamp::as_millis)),
        ];
        let sql = "insert into idempotency (token_id, key, created_at, doc) values ($1, $2, $3, $4) \
                   on conflict (token_id, key) do update set created_at = excluded.created_at, doc = excluded.doc \
                   where idempotency.created_at < $5";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Returns the answer with its body resealed under the current sealing key.
    pub(crate) async fn resealed_answer(
        &mut self,
        answer: &IdempotencyRecord,
    ) -> Result<IdempotencyRecord, StoreError> {
        let mut answer = answer.clone();
        if let Ok(sealed) = hex::decode(&answer.body) {
            answer.body = hex::encode(self.reseal_value(&answer.seal_owner(), &sealed).await?);
        }
        Ok(answer)
    }
}

impl Reader {
    /// Returns the answer stored under this key, if there is one.
    pub async fn idempotency(&mut self, token: TokenId, key: &str) -> Result<Option<IdempotencyRecord>, StoreError> {
        self.find(
            "select token_id, key, doc from idempotency where token_id = $1 and key = $2",
            vec![text(token), text(key)],
        )
        .await
    }
}
