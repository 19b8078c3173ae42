//! Sealed secrets. The keys that open them are not in the store.

use gpuaas_model::{SecretId, Timestamp, WorkloadId};

use crate::{
    error::StoreError,
    query::{Row, Value, get_blob, get_int, get_optional, get_parsed, get_text, text, text_or_empty},
    record::SecretRecord,
    store::{Reader, Tx},
};

impl Tx {
    /// Inserts a secret, replacing the workload's earlier one with the same name.
    pub async fn put_secret(&mut self, secret: &SecretRecord) -> Result<(), StoreError> {
        let sealed = self.reseal_value(secret.id.to_string().as_bytes(), &secret.sealed).await?;
        let values = vec![text_or_empty(secret.workload), text(&secret.name)];
        self.execute("delete from secrets where workload_id = $1 and name = $2", values).await?;
        let values = vec![
            text(secret.id),
            text_or_empty(secret.workload),
            text(&secret.name),
            text(&secret.sha256),
            Value::Blob(sealed),
            Value::Int(secret.created_at.as_millis()),
        ];
        let sql =
            "insert into secrets (id, workload_id, name, sha256, sealed, created_at) values ($1, $2, $3, $4, $5, $6)";
        self.execute(sql, values).await?;
        Ok(())
    }

    /// Deletes every secret of a workload.
    pub async fn delete_secrets_of(&mut self, workload: WorkloadId) -> Result<(), StoreError> {
        self.execute("delete from secrets where workload_id = $1", vec![text(workload)]).await?;
        Ok(())
    }
}

impl Reader {
    /// Returns the secret with this id.
    pub async fn secret(&mut self, id: SecretId) -> Result<SecretRecord, StoreError> {
        let row = self.row("select * from secrets where id = $1", vec![text(id)]).await?;
        row.as_ref().map(secret).transpose()?.ok_or_else(|| StoreError::not_found("secret", id))
    }

    /// Returns every secret of every workload.
    pub async fn every_secret(&mut self) -> Result<Vec<SecretRecord>, StoreError> {
        self.rows("select * from secrets order by id", Vec::new()).await?.iter().map(secret).collect()
    }

    /// Returns the secrets of a workload.
    pub async fn secrets_of(&mut self, workload: WorkloadId) -> Result<Vec<SecretRecord>, StoreError> {
        let rows = self.rows("select * from secrets where workload_id = $1 order by id", vec![text(workload)]).await?;
        rows.iter().map(secret).collect()
    }
}

pub(crate) fn secret(row: &Row) -> Result<SecretRecord, StoreError> {
    Ok(SecretRecord {
        id: get_parsed(row, "id")?,
        workload: get_optional(row, "workload_id")?,
        name: get_text(row, "name")?,
        sealed: get_blob(row, "sealed")?,
        sha256: get_text(row, "sha256")?,
        created_at: Timestamp::from_millis(get_int(row, "created_at")?),
    })
}
