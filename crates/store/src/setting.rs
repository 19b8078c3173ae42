//! The control plane's own few values: its id, its sealed keys.

use crate::{
    error::StoreError,
    query::{Value, get_blob, text},
    store::{Reader, Tx},
};

impl Tx {
    /// Keeps a value unless one is kept already; returns the one that is. One that is sealed is sealed for its name.
    pub async fn put_setting_if_absent(&mut self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let sql = "insert into settings (name, value) values ($1, $2) on conflict do nothing";
        let value = self.sealed_now(name.as_bytes(), value).await?;
        self.execute(sql, vec![text(name), Value::Blob(value)]).await?;
        self.setting(name).await?.ok_or_else(|| StoreError::not_found("setting", name))
    }
}

impl Reader {
    /// The value of that name, if there is one.
    pub async fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.row("select name, value from settings where name = $1", vec![text(name)]).await?;
        row.map(|row| get_blob(&row, "value")).transpose()
    }
}
