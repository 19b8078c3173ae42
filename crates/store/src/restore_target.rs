//! Examines a database before anything is written to it.

use crate::{
    dump::{RESTORE_ID, TABLES},
    error::StoreError,
    inspect::tables,
    migrate,
    options::StoreOptions,
    query::text,
    store::Store,
};

/// The contents of a database that matter to a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreTarget {
    /// The first table with rows; `None` if a backup can be restored into the database.
    pub rows_in: Option<&'static str>,
    /// The id of the restore that loaded its rows, if there was one.
    pub restore_id: Option<String>,
}

impl Store {
    /// Examines a database without changing it: creates no file, schema or row. Refuses a store of a newer version.
    pub async fn inspect_restore_target(options: &StoreOptions) -> Result<RestoreTarget, StoreError> {
        let dialect = options.check()?;
        let Some(mut connection) = options.open_to_read().await? else { return Ok(RestoreTarget::default()) };
        let names = tables(&mut connection, dialect).await?;
        migrate::newest_applied(&mut connection, &names).await?;
        let mut found = RestoreTarget::default();
        for table in TABLES.into_iter().filter(|table| names.iter().any(|name| name == table)) {
            let rows = connection.rows(format!("select 1 as one from {table} limit 1"), Vec::new(), 1).await?;
            if !rows.is_empty() {
                found.rows_in.get_or_insert(table);
            }
            if table == "settings" {
                let sql = "select value from settings where name = $1";
                let id = connection.rows(sql, vec![text(RESTORE_ID)], 1).await?.pop();
                let id = id.map(|row| row.blob("value").map(|id| String::from_utf8_lossy(id).into_owned()));
                found.restore_id = id.transpose()?;
            }
        }
        Ok(found)
    }
}
