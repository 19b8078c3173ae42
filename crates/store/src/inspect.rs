//! Inspects a store without creating or changing anything, to decide whether it may be opened.

use std::path::Path;

use sqlx::postgres::PgConnectOptions;

use crate::{
    database::Connection,
    dialect::Dialect,
    error::StoreError,
    migrate,
    options::StoreOptions,
    query::{Value, get_text},
    sealing_record::SealingRecord,
};

/// The setting with the control plane's id. It is written with the first rows, so a store without it has no platform.
pub const PLATFORM: &str = "control-plane.id";
/// Most of SQLite's findings that an error repeats.
const FINDINGS_SHOWN: usize = 3;
/// Tables that are empty while the store has no platform.
const PLATFORM_TABLES: [&str; 7] = ["settings", "authorities", "signing_keys", "projects", "nodes", "tokens", "audit"];

/// The contents of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The file does not exist.
    NoFile,
    /// The file has no bytes.
    EmptyFile,
    /// The platform's tables do not exist.
    NoTables,
    /// The tables exist, without rows of a platform.
    NoRows,
    /// The store holds a platform.
    Platform,
}

impl Contents {
    /// Returns what a store lacks that should hold a platform, as a phrase for messages.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NoFile => "does not exist",
            Self::EmptyFile => "is empty",
            Self::NoTables => "has no tables of a control plane",
            Self::NoRows => "has the tables of a control plane, but no rows",
            Self::Platform => "holds a control plane",
        }
    }
}

impl StoreOptions {
    /// Returns the path of the file or the name of the database, for messages; without a password.
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

    /// Returns the contents of the store without creating or changing anything. Fails if a newer version wrote the
    /// store, or on damage that this check detects.
    pub async fn inspect(&self) -> Result<Contents, StoreError> {
        let Some(mut connection) = self.open_to_read().await? else {
            return Ok(self.absent().unwrap_or(Contents::NoFile));
        };
        contents(&mut connection, self.check()?).await
    }

    /// Runs SQLite's `quick_check`, which reads the whole file without comparing indexes with their tables. Does
    /// nothing on PostgreSQL.
    pub async fn quick_check(&self) -> Result<(), StoreError> {
        if Dialect::of(&self.url) != Some(Dialect::Sqlite) {
            return Ok(());
        }
        let Some(mut connection) = self.open_to_read().await? else { return Ok(()) };
        let found = findings(&mut connection, "quick_check", FINDINGS_SHOWN).await?;
        match found.is_empty() {
            true => Ok(()),
            false => Err(StoreError::Damaged { place: self.place(), detail: found.join("; ") }),
        }
    }

    /// Opens a read-only connection in a transaction with one snapshot; `None` if the database file is missing or
    /// empty.
    pub(crate) async fn open_to_read(&self) -> Result<Option<Connection>, StoreError> {
        let dialect = self.check()?;
        if self.absent().is_some() {
            return Ok(None);
        }
        let mut connection = Connection::open_to_read(dialect, &self.url).await?;
        connection.run(dialect.begin_reading()).await?;
        Ok(Some(connection))
    }

    /// Returns how the database file is absent; `None` if it is present, or on PostgreSQL.
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
    /// Returns the sealing record; `None` if there is none. Creates and changes nothing.
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

/// Returns the findings of one of SQLite's checks, at most `most` lines.
pub(crate) async fn findings(
    connection: &mut Connection,
    check: &'static str,
    most: usize,
) -> Result<Vec<String>, StoreError> {
    let rows = connection.rows(format!("pragma {check}({most})"), Vec::new(), most).await?;
    let lines: Vec<String> = rows.iter().map(|row| row.text(check).map(str::to_owned)).collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Returns the names of all tables, including tables that this crate did not create.
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
    for table in PLATFORM_TABLES.into_iter().filter(|table| has(table)) {
        if !connection.rows(format!("select * from {table} limit 1"), Vec::new(), 1).await?.is_empty() {
            let why = format!("the row is missing, although table {table} has rows");
            return Err(StoreError::corrupt("settings", PLATFORM, "value", why));
        }
    }
    Ok(Contents::NoRows)
}
