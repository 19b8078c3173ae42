//! All that differs between the databases.

use std::{path::PathBuf, time::Duration};

/// How long a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
}

impl Dialect {
    /// The dialect of a URL; `None` for one that is not known.
    pub(crate) fn of(url: &str) -> Option<Self> {
        url.starts_with("sqlite:").then_some(Self::Sqlite)
    }

    /// Begins a transaction that will write: SQLite takes its lock at once instead of failing half-way.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "begin immediate",
        }
    }

    /// The database's clock in milliseconds since the epoch.
    pub(crate) const fn now_ms(self) -> &'static str {
        match self {
            Self::Sqlite => "select cast((julianday('now') - 2440587.5) * 86400000 as integer) as now_ms",
        }
    }

    /// Statements for every fresh connection.
    pub(crate) fn connection_setup(self) -> String {
        match self {
            Self::Sqlite => format!(
                "pragma busy_timeout = {}; pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on;",
                BUSY_TIMEOUT.as_millis()
            ),
        }
    }

    /// What it needs beyond the portable migrations, by schema version.
    pub(crate) const fn extra_migration(self, version: i64) -> Option<&'static str> {
        match (self, version) {
            (Self::Sqlite, 1) => Some(include_str!("../migrations/sqlite_0001_append_only.sql")),
            (Self::Sqlite, _) => None,
        }
    }

    /// The database's own file, if it is one.
    pub(crate) fn file(self, url: &str) -> Option<PathBuf> {
        match self {
            Self::Sqlite => {
                let path = url.strip_prefix("sqlite://")?;
                Some(PathBuf::from(path.split('?').next().unwrap_or(path)))
            }
        }
    }
}
