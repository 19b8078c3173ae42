//! Settings: named values of the control plane, for example its id and its sealed keys.

use crate::{
    error::StoreError,
    query::{Value, get_blob, text},
    store::{Reader, Tx},
};

impl Tx {
    /// Stores a value unless the setting exists, and returns the stored value. Sealed values are sealed for the
    /// setting's name.
    pub async fn put_setting_if_absent(&mut self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let sql = "insert into settings (name, value) values ($1, $2) on conflict do nothing";
        let value = self.reseal_value(name.as_bytes(), value).await?;
        self.execute(sql, vec![text(name), Value::Blob(value)]).await?;
        self.setting(name).await?.ok_or_else(|| StoreError::not_found("setting", name))
    }
}

impl Reader {
    /// Returns the value of the setting, if it exists.
    pub async fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.row("select name, value from settings where name = $1", vec![text(name)]).await?;
        row.map(|row| get_blob(&row, "value")).transpose()
    }
}
