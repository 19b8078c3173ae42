//! All differences between SQLite and PostgreSQL.

use std::{borrow::Cow, path::PathBuf, time::Duration};

/// How long a statement waits for a lock.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a statement may run on PostgreSQL; normal statements touch tens of rows.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// How long a transaction may be idle between two statements: a frozen replica must not block the others.
const IDLE_IN_CHANGE_MAX: Duration = Duration::from_secs(10);
/// Size of SQLite's write-ahead log, in pages, after which it is copied into the database: 16 MiB. A page that changes
/// often is then copied only once.
const LOG_PAGES: u32 = 4_096;
/// The oldest supported version of PostgreSQL. The tests run against 15.
const POSTGRES_OLDEST: i64 = 14;

/// Most list values of one statement; they are its first values.
const LISTS_MAX: usize = 3;

macro_rules! sqlite_now_ms {
    () => {
        "cast((julianday('now') - 2440587.5) * 86400000 as integer)"
    };
}

/// Not `now()`, which is constant within a transaction.
macro_rules! postgres_now_ms {
    () => {
        "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)"
    };
}

/// A renewal keeps the fence; a new holder after expiry gets a higher one. Does nothing unless the condition holds.
macro_rules! take_lease {
    ($clock:expr, $condition:expr) => {
        concat!(
            "with now (ms) as (select case when $4 > 0 then $4 else ",
            $clock,
            " end) insert into leases (name, holder, fence, expires_at) select $1, $2, 1, now.ms + $3 from now where ",
            $condition,
            " on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at, \
             fence = case when leases.holder = excluded.holder then leases.fence else leases.fence + 1 end \
             where leases.holder = excluded.holder or leases.expires_at <= excluded.expires_at - $3 \
             returning fence, expires_at"
        )
    };
}

/// The holder is a replica that was not evicted.
macro_rules! is_replica {
    () => {
        "exists (select 1 from replicas where id = $2)"
    };
}

macro_rules! replicas {
    ($clock:expr) => {
        concat!(
            "select replicas.id as id, replicas.doc as doc, coalesce(leases.expires_at, 0) as expires_at, ",
            $clock,
            " as now_ms from replicas left join leases on leases.name = 'replica/' || replicas.id order by replicas.id"
        )
    };
}

/// The database in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Returns the dialect of a URL; `None` if its scheme is not supported.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split(':').next()? {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// Returns the statements that begin the only writing transaction, with a savepoint in it. SQLite takes its write
    /// lock at once instead of failing later. On PostgreSQL an advisory lock serializes the writers of all replicas.
    /// Without it, two changes that take the same counters in different order would deadlock, and rows could change
    /// between a change's read and its write.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "begin immediate; savepoint change",
            // Read committed is enough: while the lock is held, no other transaction commits. The lock number is arbitrary and
            // the same in every version.
            Self::Postgres => {
                "begin isolation level read committed; select pg_advisory_xact_lock(7253418160); savepoint change"
            }
        }
    }

    /// Ends a savepoint, rolled back if `is_rolled_back`, and begins the next.
    pub(crate) const fn next_savepoint(self, is_rolled_back: bool) -> &'static str {
        match is_rolled_back {
            true => "rollback to savepoint change; release savepoint change; savepoint change",
            false => "release savepoint change; savepoint change",
        }
    }

    /// Rolls back to the savepoint.
    pub(crate) const fn rollback_savepoint(self) -> &'static str {
        "rollback to savepoint change"
    }

    /// Begins a transaction that reads one consistent snapshot.
    pub(crate) const fn begin_reading(self) -> &'static str {
        match self {
            Self::Sqlite => "begin",
            Self::Postgres => "begin isolation level repeatable read read only",
        }
    }

    /// Raises the number `$1` and yields it, with the last audit number and whether the setting `$2` exists. Yields
    /// nothing if the transaction changed no row. SQLite compares its count of rows changed over the connection with
    /// `$3`, the count at the begin of the transaction.
    pub(crate) const fn count_commit(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "insert into streams (stream, last_sequence) select $1, 1 where total_changes() > $3 \
                 on conflict (stream) do update set last_sequence = streams.last_sequence + 1 \
                 returning last_sequence as number, \
                 (select coalesce(max(other.last_sequence), 0) from streams other where other.stream = 'audit') as audit, \
                 (select count(*) from settings where name = $2) as stops"
            }
            Self::Postgres => {
                "insert into streams (stream, last_sequence) \
                 select $1, 1 where pg_current_xact_id_if_assigned() is not null and $3 >= 0 \
                 on conflict (stream) do update set last_sequence = streams.last_sequence + 1 \
                 returning last_sequence as number, \
                 (select coalesce(max(other.last_sequence), 0) from streams other where other.stream = 'audit') as audit, \
                 (select count(*) from settings where name = $2) as stops"
            }
        }
    }

    /// Yields the database's clock as `now_ms`, in milliseconds since the epoch.
    pub(crate) const fn now_ms(self) -> &'static str {
        match self {
            Self::Sqlite => concat!("select ", sqlite_now_ms!(), " as now_ms"),
            Self::Postgres => concat!("select ", postgres_now_ms!(), " as now_ms"),
        }
    }

    /// Takes or renews the lease `$1` for the holder `$2` and `$3` milliseconds, and yields its `fence` and
    /// `expires_at`; yields nothing while another holder has it. `$4` is the current time in milliseconds since the
    /// epoch; if it is 0, the database's clock is used.
    pub(crate) const fn take_lease(self) -> &'static str {
        match self {
            Self::Sqlite => take_lease!(sqlite_now_ms!(), "true"),
            Self::Postgres => take_lease!(postgres_now_ms!(), "true"),
        }
    }

    /// Like [`Dialect::take_lease`], but yields nothing if the holder is no replica or was evicted.
    pub(crate) const fn take_lease_of_replica(self) -> &'static str {
        match self {
            Self::Sqlite => take_lease!(sqlite_now_ms!(), is_replica!()),
            Self::Postgres => take_lease!(postgres_now_ms!(), is_replica!()),
        }
    }

    /// Yields every replica, oldest first: its `id`, its `doc`, the end of its lease as `expires_at`, which is 0 without one, and the database's clock
    /// as `now_ms`, in milliseconds since the epoch.
    pub(crate) const fn replicas(self) -> &'static str {
        match self {
            Self::Sqlite => replicas!(sqlite_now_ms!()),
            Self::Postgres => replicas!(postgres_now_ms!()),
        }
    }

    /// Returns the statements that set up a new connection.
    pub(crate) fn connection_setup(self) -> String {
        let lock_wait_ms = LOCK_WAIT_MAX.as_millis();
        match self {
            Self::Sqlite => format!(
                "pragma busy_timeout = {lock_wait_ms}; pragma journal_mode = wal; pragma synchronous = full; \
                 pragma foreign_keys = on; pragma temp_store = memory; pragma wal_autocheckpoint = {LOG_PAGES};"
            ),
            // A server may be configured to report a commit before it is on disk. Stronger settings than `on` are kept.
            Self::Postgres => format!(
                "set lock_timeout = {lock_wait_ms}; set statement_timeout = {}; \
                 set idle_in_transaction_session_timeout = {}; \
                 select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';",
                STATEMENT_MAX.as_millis(),
                IDLE_IN_CHANGE_MAX.as_millis()
            ),
        }
    }

    /// Yields one row, with the message in `problem`, if the server is too old.
    pub(crate) fn server_version_check(self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(format!(
                "select 'PostgreSQL ' || current_setting('server_version') || ' is older than {POSTGRES_OLDEST}' as problem \
                 where cast(current_setting('server_version_num') as bigint) < {}",
                POSTGRES_OLDEST * 10_000
            )),
        }
    }

    /// Yields the names of all tables as `name`, including tables that this crate did not create.
    pub(crate) const fn tables(self) -> &'static str {
        match self {
            Self::Sqlite => "select name from sqlite_master where type = 'table'",
            Self::Postgres => {
                "select cast(table_name as text) as name from information_schema.tables where table_schema = current_schema()"
            }
        }
    }

    /// Yields the columns of the table `$1`: `name`, and `type` in the database's own notation.
    pub(crate) const fn columns(self) -> &'static str {
        match self {
            Self::Sqlite => "select name, lower(type) as type from pragma_table_info($1)",
            Self::Postgres => {
                "select cast(column_name as text) as name, cast(data_type as text) as type \
                 from information_schema.columns where table_schema = current_schema() and table_name = $1"
            }
        }
    }

    /// Translates a portable migration to this database.
    pub(crate) fn migration(self, portable: &'static str) -> Cow<'static, str> {
        match self {
            Self::Sqlite => Cow::Borrowed(portable),
            Self::Postgres => Cow::Owned(portable.replace(" blob ", " bytea ")),
        }
    }

    /// Translates a statement with list values: the table `json_each($1)` has the items of the first value, a JSON
    /// array of texts, in its column `value`.
    pub(crate) fn with_lists(self, portable: &'static str) -> Cow<'static, str> {
        match self {
            Self::Sqlite => Cow::Borrowed(portable),
            Self::Postgres => Cow::Owned((1..=LISTS_MAX).fold(portable.to_owned(), |sql, place| {
                sql.replace(&format!("json_each(${place})"), &format!("jsonb_array_elements_text(${place}::jsonb)"))
            })),
        }
    }

    /// Returns the additional migration for a schema version, if there is one.
    pub(crate) const fn extra_migration(self, version: i64) -> Option<&'static str> {
        match (self, version) {
            (Self::Sqlite, 1) => Some(include_str!("../migrations/sqlite_0001_append_only.sql")),
            (Self::Postgres, 1) => Some(include_str!("../migrations/postgres_0001_append_only.sql")),
            (Self::Sqlite, 4) => Some(include_str!("../migrations/sqlite_0004_from_documents.sql")),
            (Self::Postgres, 4) => Some(include_str!("../migrations/postgres_0004_from_documents.sql")),
            (Self::Sqlite, 9) => Some(include_str!("../migrations/sqlite_0009_append_only.sql")),
            (Self::Sqlite, 10) => Some(include_str!("../migrations/sqlite_0010_retention.sql")),
            (Self::Postgres, 10) => Some(include_str!("../migrations/postgres_0010_retention.sql")),
            (Self::Sqlite, 12) => Some(include_str!("../migrations/sqlite_0012_audit_workloads.sql")),
            (Self::Postgres, 12) => Some(include_str!("../migrations/postgres_0012_audit_workloads.sql")),
            (Self::Sqlite, 13) => Some(include_str!("../migrations/sqlite_0013_external_and_left_machines.sql")),
            (Self::Postgres, 13) => Some(include_str!("../migrations/postgres_0013_external_and_left_machines.sql")),
            (Self::Sqlite, 17) => Some(include_str!("../migrations/sqlite_0017_audit_seals.sql")),
            (Self::Postgres, 17) => Some(include_str!("../migrations/postgres_0017_audit_seals.sql")),
            (Self::Sqlite | Self::Postgres, _) => None,
        }
    }

    /// Returns the additions to the portable baseline schema.
    pub(crate) const fn extra_baseline(self) -> &'static str {
        match self {
            Self::Sqlite => include_str!("../migrations/sqlite_baseline_0011.sql"),
            Self::Postgres => include_str!("../migrations/postgres_baseline_0011.sql"),
        }
    }

    /// Returns whether processes on other machines may use the database at the same time.
    pub(crate) const fn is_shared(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Postgres => true,
        }
    }

    /// Returns the path of the database file; `None` on PostgreSQL.
    pub(crate) fn file(self, url: &str) -> Option<PathBuf> {
        match self {
            Self::Sqlite => {
                let path = url.strip_prefix("sqlite://")?;
                Some(PathBuf::from(path.split('?').next().unwrap_or(path)))
            }
            Self::Postgres => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuaas_test_support::{DatabaseFile, ManualClock};

    use super::*;
    use crate::{Store, StoreOptions};

    #[tokio::test]
    async fn leases_are_found_by_their_names() {
        let database = DatabaseFile::new();
        let options = StoreOptions { url: database.url() };
        Store::open(&options, Arc::new(ManualClock::default())).await.unwrap().close().await;
        let store = rusqlite::Connection::open(database.path()).unwrap();
        let sqlite = Dialect::Sqlite;
        for sql in [sqlite.replicas(), sqlite.take_lease(), sqlite.take_lease_of_replica()] {
            let mut plan = store.prepare(&format!("explain query plan {sql}")).unwrap();
            let steps = plan.raw_query().mapped(|row| row.get::<_, String>("detail"));
            let steps = steps.collect::<Result<Vec<_>, _>>().unwrap();
            assert!(!steps.iter().any(|step| step.starts_with("SCAN leases")), "{sql}: {steps:?}");
        }
    }
}
