//! What a store holds, seen without making or changing anything: for whoever decides whether it may be opened.

use std::path::Path;

use sqlx::postgres::PgConnectOptions;

use crate::{
    database::Connection,
    dialect::Dialect,
    error::StoreError,
    migrate,
    query::{Value, get_text},
    sealing::SealingRecord,
    store::StoreOptions,
};

/// The setting without which there is no platform: the control plane's id, written with the first rows of all.
pub const PLATFORM: &str = "control-plane.id";
/// Findings of SQLite that an error repeats; the first says enough.
const FINDINGS_TOLD: usize = 3;
/// Tables that have no rows as long as there is no platform.
const OF_A_PLATFORM: [&str; 7] = ["settings", "authorities", "signing_keys", "projects", "nodes", "tokens", "audit"];

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// There is no such file.
    NoFile,
    /// The file has no bytes.
    EmptyFile,
    /// None of the platform's tables.
    NoTables,
    /// Tables, and no platform's rows in them.
    NoRows,
    /// A platform.
    Platform,
}

impl Contents {
    /// What is wrong with a store that should hold a platform, as a phrase.
    pub const fn lack(self) -> &'static str {
        match self {
            Self::NoFile => "does not exist",
            Self::EmptyFile => "is empty",
            Self::NoTables => "has no tables of a control plane",
            Self::NoRows => "has the tables of a control plane and no rows",
            Self::Platform => "holds a control plane",
        }
    }
}

impl StoreOptions {
    /// The file or database, as people name it; without a password.
    pub fn place(&self) -> String {
        match Dialect::of(&self.url) {
            Some(Dialect::Sqlite) => Dialect::Sqlite.file(&self.url).unwrap_or_default().display().to_string(),
            Some(Dialect::Postgres) => match self.url.parse::<PgConnectOptions>() {
                Ok(options) => {
                    let database = options.get_database().unwrap_or_else(|| options.get_username());
                    format!("the PostgreSQL database {database} at {}", options.get_host())
                }
                Err(_) => "the PostgreSQL database".to_owned(),
            },
            None => "the store".to_owned(),
        }
    }

    /// What the store holds. Makes and changes nothing; fails where it was written by a newer version, or is damaged as far as this sees it.
    pub async fn inspect(&self) -> Result<Contents, StoreError> {
        let Some(mut connection) = self.open_to_read().await? else {
            return Ok(self.absent().unwrap_or(Contents::NoFile));
        };
        contents(&mut connection, self.check()?).await
    }

    /// Has SQLite check its whole file, without comparing indexes with their tables. A server checks its own.
    pub async fn quick_check(&self) -> Result<(), StoreError> {
        if Dialect::of(&self.url) != Some(Dialect::Sqlite) {
            return Ok(());
        }
        let Some(mut connection) = self.open_to_read().await? else { return Ok(()) };
        let found = findings(&mut connection, "quick_check", FINDINGS_TOLD).await?;
        match found.is_empty() {
            true => Ok(()),
            false => Err(StoreError::Damaged { place: self.place(), detail: found.join("; ") }),
        }
    }

    /// A connection that changes nothing, in a transaction that sees one moment; `None` where there is no database file, or an empty one.
    pub(crate) async fn open_to_read(&self) -> Result<Option<Connection>, StoreError> {
        let dialect = self.check()?;
        if self.absent().is_some() {
            return Ok(None);
        }
        let mut connection = Connection::open_to_read(dialect, &self.url).await?;
        connection.run(dialect.begin_reading()).await?;
        Ok(Some(connection))
    }

    /// How a file is missing, if it is.
    fn absent(&self) -> Option<Contents> {
        let file = Dialect::of(&self.url)?.file(&self.url)?;
        match std::fs::metadata(&file) {
            Ok(found) if found.len() == 0 => Some(Contents::EmptyFile),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Contents::NoFile),
            Ok(_) | Err(_) => None,
        }
    }
}

impl Connection {
    async fn open_to_read(dialect: Dialect, url: &str) -> Result<Self, StoreError> {
        match dialect.file(url) {
            Some(file) => Self::open_file_to_read(Path::new(&file)),
            None => Self::open(dialect, url).await,
        }
    }
}

impl StoreOptions {
    /// Which sealing keys the rows are under; `None` where no row says so. Makes and changes nothing.
    pub async fn sealing(&self) -> Result<Option<SealingRecord>, StoreError> {
        let Some(mut connection) = self.open_to_read().await? else { return Ok(None) };
        if !tables(&mut connection, self.check()?).await?.iter().any(|table| table == "settings") {
            return Ok(None);
        }
        let sql = "select name, value from settings where name = $1";
        let rows = connection.rows(sql, vec![Value::Text(SealingRecord::SETTING.to_owned())], 1).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        serde_json::from_slice(row.blob("value")?).map(Some).map_err(|error| row.corrupt("value", error))
    }
}

/// What one of SQLite's checks finds, at most so many lines.
pub(crate) async fn findings(
    connection: &mut Connection,
    check: &'static str,
    most: usize,
) -> Result<Vec<String>, StoreError> {
    let rows = connection.rows(format!("pragma {check}({most})"), Vec::new(), most).await?;
    let lines: Vec<String> = rows.iter().map(|row| row.text(check).map(str::to_owned)).collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// The names of all tables, whoever made them.
pub(crate) async fn tables(connection: &mut Connection, dialect: Dialect) -> Result<Vec<String>, StoreError> {
    let rows = connection.rows(dialect.tables(), Vec::new(), usize::MAX).await?;
    rows.iter().map(|row| get_text(row, "name")).collect()
}

async fn contents(connection: &mut Connection, dialect: Dialect) -> Result<Contents, StoreError> {
    let tables = tables(connection, dialect).await?;
    let has = |name: &str| tables.iter().any(|table| table == name);
    if !has("schema_versions") || !has("settings") {
        return Ok(Contents::NoTables);
    }
    migrate::newest_applied(connection, &tables).await?;
    let sql = "select name from settings where name = $1";
    if !connection.rows(sql, vec![Value::Text(PLATFORM.to_owned())], 1).await?.is_empty() {
        return Ok(Contents::Platform);
    }
    for table in OF_A_PLATFORM.into_iter().filter(|table| has(table)) {
        if !connection.rows(format!("select * from {table} limit 1"), Vec::new(), 1).await?.is_empty() {
            let why = format!("the row is missing, although table {table} has rows");
            return Err(StoreError::corrupt("settings", PLATFORM, "value", why));
        }
    }
    Ok(Contents::NoRows)
}
