//! A fresh database for one test, and access to it with and without the store.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use gpuaas_store::{RecordProof, Store, StoreError, StoreOptions};
use gpuaas_test_support::{DatabaseFile, ManualClock};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use gpuaas_postgres_server::Server;

pub(crate) use gpuaas_test_support::NOW;

/// The database of one test, and its clock.
pub(crate) struct Database {
    /// URL of the database.
    pub(crate) url: String,
    /// Whether it is on a server, which processes on other machines could use too.
    pub(crate) is_shared: bool,
    clock: Arc<ManualClock>,
    _file: Option<DatabaseFile>,
}

/// A simplified proof and sealing with these keys. A code is a hash of the covered fields and the key's name; a sealed value is the plain
/// value after a hash of key and owner. The platform's implementation is in `trust`.
pub(crate) struct Proof(pub(crate) Vec<&'static str>);

impl Proof {
    fn key(&self, key: Option<&str>) -> Option<&'static str> {
        self.0.iter().copied().find(|held| key.is_none_or(|key| *held == key))
    }

    /// Seals `plain` for `owner` with that key.
    pub(crate) fn sealed(key: &str, owner: &[u8], plain: &[u8]) -> Vec<u8> {
        [&sum(&(key, owner)), plain].concat()
    }
}

fn sum(of: &impl Hash) -> [u8; 8] {
    let mut sum = DefaultHasher::new();
    of.hash(&mut sum);
    sum.finish().to_be_bytes()
}

impl RecordProof for Proof {
    fn code(&self, key: Option<&str>, kind: &str, fields: &[&[u8]]) -> Option<Vec<u8>> {
        self.key(key).map(|key| sum(&(key, kind, fields)).to_vec())
    }

    fn proven_by(&self, kind: &str, fields: &[&[u8]], code: &[u8]) -> Option<String> {
        let mut held = self.0.iter();
        held.find(|key| sum(&(**key, kind, fields)) == code).map(|key| (*key).to_owned())
    }

    fn reseal<'a>(&self, key: Option<&str>, owner: &[u8], sealed: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let (begins, plain) = sealed.split_at_checked(8)?;
        let under = self.0.iter().find(|held| sum(&(**held, owner)) == begins)?;
        let key = self.key(key)?;
        Some(if *under == key { Cow::Borrowed(sealed) } else { Cow::Owned(Self::sealed(key, owner, plain)) })
    }
}

impl Database {
    /// A new SQLite file.
    pub(crate) async fn sqlite() -> Self {
        let file = DatabaseFile::new();
        Self::at(file.url(), Some(file))
    }

    /// A new database on the PostgreSQL server of this test binary.
    pub(crate) async fn postgres() -> Self {
        let server = tokio::task::spawn_blocking(Server::shared).await.expect("the PostgreSQL server starts");
        Self::at(server.fresh_database().await, None)
    }

    /// An existing database.
    pub(crate) fn at(url: String, file: Option<DatabaseFile>) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { url, is_shared: file.is_none(), clock, _file: file }
    }

    /// Runs a behaviour and then removes its database, unless the behaviour fails.
    pub(crate) async fn run<F: Future<Output = ()>>(self, behaviour: impl FnOnce(Self) -> F) {
        let (url, is_shared) = (self.url.clone(), self.is_shared);
        behaviour(self).await;
        if is_shared {
            Server::shared().remove_database(&url).await;
        }
    }

    /// The store's options for this database.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions { url: self.url.clone() }
    }

    /// Opens the store, as another process would.
    pub(crate) async fn open(&self) -> Store {
        self.try_open().await.expect("the store opens")
    }

    /// As [`Database::open`], but returns an error if the store refuses to open.
    pub(crate) async fn try_open(&self) -> Result<Store, StoreError> {
        let store = Store::open(&StoreOptions { url: self.url.clone() }, self.clock.clone()).await?;
        store.set_record_proof(Arc::new(Proof(vec!["old"])));
        Ok(store)
    }

    /// Opens the store without the key that proves records.
    pub(crate) async fn open_unproven(&self) -> Store {
        let options = StoreOptions { url: self.url.clone() };
        Store::open(&options, self.clock.clone()).await.expect("the store opens")
    }

    /// Advances the control plane's clock; the database has a separate clock.
    pub(crate) fn advance_clock(&self, millis: i64) {
        self.clock.advance_millis(millis);
    }

    /// Runs SQL without the store, as a person with access to the database could.
    pub(crate) async fn sql(&self, statement: &str) -> Result<(), String> {
        if let Some(file) = self.file() {
            let connection = rusqlite::Connection::open(file).expect("the file opens");
            return connection.execute_batch(statement).map_err(|error| error.to_string());
        }
        let mut connection = self.connect().await;
        let ran = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await;
        connection.close().await.map_err(|error| error.to_string())?;
        ran.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The number that a query returns.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        if let Some(file) = self.file() {
            let connection = rusqlite::Connection::open(file).expect("the file opens");
            let number = connection.query_row(statement, [], |row| row.get(0));
            return number.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        let mut connection = self.connect().await;
        let row = sqlx::query(AssertSqlSafe(statement.to_owned())).fetch_one(&mut connection).await;
        row.and_then(|row| row.try_get(0)).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The texts that a query returns in its only column.
    pub(crate) async fn texts(&self, statement: &str) -> Vec<String> {
        if let Some(file) = self.file() {
            let connection = rusqlite::Connection::open(file).expect("the file opens");
            let mut prepared = connection.prepare(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
            let texts = prepared.query_map([], |row| row.get(0)).expect("the query runs");
            return texts.map(|text| text.unwrap_or_else(|error| panic!("{statement}: {error}"))).collect();
        }
        let mut connection = self.connect().await;
        let rows = sqlx::query(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await;
        let rows = rows.unwrap_or_else(|error| panic!("{statement}: {error}"));
        rows.iter().map(|row| row.try_get(0).unwrap_or_else(|error| panic!("{statement}: {error}"))).collect()
    }

    /// The control plane's clock.
    pub(crate) fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    /// A query that counts the tables.
    pub(crate) fn tables(&self) -> &'static str {
        if self.is_shared {
            "select count(*) from information_schema.tables where table_schema = 'public'"
        } else {
            "select count(*) from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        }
    }

    /// Whether the database is on a server, which processes on other machines could use too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Connects to the server without the store.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("the database accepts connections")
    }

    /// Path of the SQLite file; none on a server.
    fn file(&self) -> Option<&str> {
        self.url.strip_prefix("sqlite://")
    }
}

/// Runs `count` futures concurrently and returns their results.
pub(crate) async fn run_concurrently<T, F>(count: usize, each: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let running: Vec<_> = (0..count).map(|index| tokio::spawn(each(index))).collect();
    let ended = futures::future::join_all(running).await;
    ended.into_iter().map(|ended| ended.expect("no task panics")).collect()
}
