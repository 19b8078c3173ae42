//! The disk usage of tables.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::{
    error::StoreError,
    query::{get_count, get_text},
    store::Store,
};

/// The size of a table with its indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Name of the table.
    pub table: String,
    /// Bytes in the database files, including indexes.
    pub bytes: u64,
    /// Number of rows; on PostgreSQL as of the last `vacuum` or `analyze`.
    pub rows: u64,
}

/// The disk usage of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The size of each table.
    pub tables: Vec<TableSize>,
    /// Unused bytes in the SQLite file, which later writes reuse; 0 on PostgreSQL.
    pub free_bytes: u64,
}

/// Reads every page of the file once. The leaf pages of a table's own tree hold its rows.
const SQLITE_SIZES: &str = "select coalesce(s.tbl_name, p.name) as name, sum(p.pgsize) as bytes, \
     sum(case when p.pagetype = 'leaf' and p.name = s.tbl_name then p.ncell else 0 end) as entries \
     from dbstat p left join sqlite_schema s on s.name = p.name group by 1";
const SQLITE_FREE_BYTES: &str =
    "select f.freelist_count * s.page_size from pragma_freelist_count() f, pragma_page_size() s";
const POSTGRES_SIZES: &str = "select cast(relname as text) as name, pg_total_relation_size(oid) as bytes, \
     cast(greatest(reltuples, 0) as bigint) as entries from pg_class \
     where relkind = 'r' and relnamespace = cast('public' as regnamespace)";

impl Store {
    /// Measures the database. On SQLite this reads the whole file on a separate connection and thread, so call it
    /// rarely.
    pub async fn measure(&self) -> Result<StoreSize, StoreError> {
        match self.file.clone() {
            Some(file) => {
                let measured = tokio::task::spawn_blocking(move || measure_file(&file)).await;
                measured.map_err(|_| StoreError::Unreachable("the process is shutting down".to_owned()))?
            }
            None => {
                let rows = self.read().await?.rows(POSTGRES_SIZES, Vec::new()).await?;
                let size = |row| {
                    let (bytes, rows) = (get_count(row, "bytes")?, get_count(row, "entries")?);
                    Ok(TableSize { table: get_text(row, "name")?, bytes, rows })
                };
                let tables = rows.iter().map(size).collect::<Result<_, StoreError>>()?;
                Ok(StoreSize { tables, free_bytes: 0 })
            }
        }
    }
}

fn measure_file(file: &Path) -> Result<StoreSize, StoreError> {
    read_file(file).map_err(|error| StoreError::from_sqlite(&error, file))
}

fn read_file(file: &Path) -> rusqlite::Result<StoreSize> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement = connection.prepare(SQLITE_SIZES)?;
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let tables = statement.query_map([], |row| {
        let (bytes, rows) = (count(row.get("bytes")?), count(row.get("entries")?));
        Ok(TableSize { table: row.get("name")?, bytes, rows })
    })?;
    let tables: rusqlite::Result<Vec<TableSize>> = tables.collect();
    let free_bytes = connection.query_row(SQLITE_FREE_BYTES, [], |row| row.get(0)).map(count)?;
    Ok(StoreSize { tables: tables?.into_iter().filter(|of| !of.table.starts_with("sqlite_")).collect(), free_bytes })
}
