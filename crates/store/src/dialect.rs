//! All that differs between the databases.

use std::{borrow::Cow, path::PathBuf, time::Duration};

/// How long a statement waits for another's lock.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a statement of a server's may take; ours touch tens of rows.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// How long a change may rest between two statements: a replica that froze in one must not hold up the others.
const IDLE_IN_CHANGE_MAX: Duration = Duration::from_secs(10);
/// Pages of SQLite's log after which they are copied into the database: 16 MiB. A page that changes often is copied once in that many.
const LOG_PAGES: u32 = 4_096;
/// PostgreSQL 14 and newer; what the tests run against is 15.
const POSTGRES_OLDEST: i64 = 14;

/// Lists among the values of a statement at most: they are its first values.
const LISTS_MAX: usize = 3;

macro_rules! sqlite_now_ms {
    () => {
        "cast((julianday('now') - 2440587.5) * 86400000 as integer)"
    };
}

/// Not `now()`, which stands still within a transaction.
macro_rules! postgres_now_ms {
    () => {
        "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)"
    };
}

/// The holder keeps its fence; whoever follows one whose time is over gets a higher one.
macro_rules! take_lease {
    ($clock:expr) => {
        concat!(
            "with now (ms) as (select case when $4 > 0 then $4 else ",
            $clock,
            " end) insert into leases (name, holder, fence, expires_at) select $1, $2, 1, now.ms + $3 from now where true \
             on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at, \
             fence = case when leases.holder = excluded.holder then leases.fence else leases.fence + 1 end \
             where leases.holder = excluded.holder or leases.expires_at <= excluded.expires_at - $3 \
             returning fence, expires_at"
        )
    };
}

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The dialect of a URL; `None` for one that is not known.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split(':').next()? {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// Begins a transaction that is the only one to write until it ends, and a savepoint in it. SQLite takes its lock at once instead of failing
    /// half-way; a server's writers, of all replicas, take turns by a lock: without it two changes that take the same counters in different order
    /// would lock each other up, and what a change has read could change before it writes.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "begin immediate; savepoint change",
            // Each statement sees what is committed: behind the lock that is all there will be until this one ends. The lock's number means
            // nothing and is the same in every version.
            Self::Postgres => {
                "begin isolation level read committed; select pg_advisory_xact_lock(7253418160); savepoint change"
            }
        }
    }

    /// Ends a savepoint, with what was done since or without, and begins the next.
    pub(crate) const fn next_savepoint(self, is_dropped: bool) -> &'static str {
        match is_dropped {
            true => "rollback to savepoint change; release savepoint change; savepoint change",
            false => "release savepoint change; savepoint change",
        }
    }

    /// Takes back what was done since the savepoint.
    pub(crate) const fn drop_savepoint(self) -> &'static str {
        "rollback to savepoint change"
    }

    /// Begins a transaction that sees one moment.
    pub(crate) const fn begin_reading(self) -> &'static str {
        match self {
            Self::Sqlite => "begin",
            Self::Postgres => "begin isolation level repeatable read read only",
        }
    }

    /// Raises the number of `$1` and yields it, with the audit's last one and whether there is a setting `$2`; yields nothing where the transaction
    /// has changed nothing. SQLite counts the rows changed over the connection: they were `$3` when the transaction began.
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

    /// Takes the lease `$1` for the holder `$2` and `$3` milliseconds, or renews it, and yields its `fence` and `expires_at`; yields nothing while
    /// another holds it. It is `$4` milliseconds after the epoch, or, if that is 0, what the database's clock says.
    pub(crate) const fn take_lease(self) -> &'static str {
        match self {
            Self::Sqlite => take_lease!(sqlite_now_ms!()),
            Self::Postgres => take_lease!(postgres_now_ms!()),
        }
    }

    /// Statements for every fresh connection.
    pub(crate) fn connection_setup(self) -> String {
        let lock_wait_ms = LOCK_WAIT_MAX.as_millis();
        match self {
            Self::Sqlite => format!(
                "pragma busy_timeout = {lock_wait_ms}; pragma journal_mode = wal; pragma synchronous = full; \
                 pragma foreign_keys = on; pragma temp_store = memory; pragma wal_autocheckpoint = {LOG_PAGES};"
            ),
            // A server may be set to answer before a commit is on disk; a stronger setting than `on` stays.
            Self::Postgres => format!(
                "set lock_timeout = {lock_wait_ms}; set statement_timeout = {}; \
                 set idle_in_transaction_session_timeout = {}; \
                 select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';",
                STATEMENT_MAX.as_millis(),
                IDLE_IN_CHANGE_MAX.as_millis()
            ),
        }
    }

    /// Yields one row when the server is too old to be used, saying so in `problem`.
    pub(crate) fn refuses_server(self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(format!(
                "select 'PostgreSQL ' || current_setting('server_version') || ' is older than {POSTGRES_OLDEST}' as problem \
                 where cast(current_setting('server_version_num') as bigint) < {}",
                POSTGRES_OLDEST * 10_000
            )),
        }
    }

    /// Yields the names of all tables, as `name`, whoever made them.
    pub(crate) const fn tables(self) -> &'static str {
        match self {
            Self::Sqlite => "select name from sqlite_master where type = 'table'",
            Self::Postgres => {
                "select cast(table_name as text) as name from information_schema.tables where table_schema = current_schema()"
            }
        }
    }

    /// Yields the columns of the table `$1`: `name`, and `type` as this database calls it.
    pub(crate) const fn columns(self) -> &'static str {
        match self {
            Self::Sqlite => "select name, lower(type) as type from pragma_table_info($1)",
            Self::Postgres => {
                "select cast(column_name as text) as name, cast(data_type as text) as type \
                 from information_schema.columns where table_schema = current_schema() and table_name = $1"
            }
        }
    }

    /// A portable migration in this database's words.
    pub(crate) fn migration(self, portable: &'static str) -> Cow<'static, str> {
        match self {
            Self::Sqlite => Cow::Borrowed(portable),
            Self::Postgres => Cow::Owned(portable.replace(" blob ", " bytea ")),
        }
    }

    /// A statement with lists among its values: a table `json_each($1)` has the items of the first value, a JSON array of texts, in its column `value`.
    pub(crate) fn with_lists(self, portable: &'static str) -> Cow<'static, str> {
        match self {
            Self::Sqlite => Cow::Borrowed(portable),
            Self::Postgres => Cow::Owned((1..=LISTS_MAX).fold(portable.to_owned(), |sql, place| {
                sql.replace(&format!("json_each(${place})"), &format!("jsonb_array_elements_text(${place}::jsonb)"))
            })),
        }
    }

    /// What it needs beyond the portable migrations, by schema version.
    pub(crate) const fn extra_migration(self, version: i64) -> Option<&'static str> {
        match (self, version) {
            (Self::Sqlite, 1) => Some(include_str!("../migrations/sqlite_0001_append_only.sql")),
            (Self::Postgres, 1) => Some(include_str!("../migrations/postgres_0001_append_only.sql")),
            (Self::Sqlite, 4) => Some(include_str!("../migrations/sqlite_0004_from_documents.sql")),
            (Self::Postgres, 4) => Some(include_str!("../migrations/postgres_0004_from_documents.sql")),
            (Self::Sqlite, 9) => Some(include_str!("../migrations/sqlite_0009_append_only.sql")),
            (Self::Sqlite, 10) => Some(include_str!("../migrations/sqlite_0010_retention.sql")),
            (Self::Postgres, 10) => Some(include_str!("../migrations/postgres_0010_retention.sql")),
            (Self::Sqlite | Self::Postgres, _) => None,
        }
    }

    /// What it needs beyond the portable schema that a new database begins with.
    pub(crate) const fn extra_baseline(self) -> &'static str {
        match self {
            Self::Sqlite => include_str!("../migrations/sqlite_baseline_0011.sql"),
            Self::Postgres => include_str!("../migrations/postgres_baseline_0011.sql"),
        }
    }

    /// Whether processes on other machines may use it at the same time.
    pub(crate) const fn is_shared(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Postgres => true,
        }
    }

    /// The database's own file, if it is one.
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
