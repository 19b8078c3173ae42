//! Forward-only migrations, checked at every start.

use crate::{
    database::{Connection, Value},
    dialect::Dialect,
    error::StoreError,
};

/// Every migration, oldest first. A released migration is never changed.
const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("../migrations/0001_initial.sql")),
    (2, include_str!("../migrations/0002_replicas.sql")),
    (3, include_str!("../migrations/0003_keys_and_service_accounts.sql")),
    (4, include_str!("../migrations/0004_what_is_counted_and_purged.sql")),
    (5, include_str!("../migrations/0005_machines_that_change_hands.sql")),
    (6, include_str!("../migrations/0006_bootstrapped_once.sql")),
    (7, include_str!("../migrations/0007_authorities.sql")),
    (8, include_str!("../migrations/0008_service_accounts_with_codes.sql")),
    (9, include_str!("../migrations/0009_found_without_looking_at_every_row.sql")),
    (10, include_str!("../migrations/0010_retention.sql")),
    (11, include_str!("../migrations/0011_lists_by_their_conditions.sql")),
    (12, include_str!("../migrations/0012_audit_filters_and_deletion.sql")),
    (13, include_str!("../migrations/0013_external_and_left_machines.sql")),
    (14, include_str!("../migrations/0014_superseded_operations_and_workload_names.sql")),
    (15, include_str!("../migrations/0015_reports_of_controllers.sql")),
    (16, include_str!("../migrations/0016_browser_sessions.sql")),
    (17, include_str!("../migrations/0017_audit_seals.sql")),
];

/// The schema of a new database, which replaces the migrations up to this version: it is created directly, without
/// changes or drops.
const BASELINE: (i64, &str) = (11, include_str!("../migrations/baseline_0011.sql"));

/// The newest schema version that this version of the program supports.
pub(crate) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// Applies missing migrations in the open transaction, so that of several replicas that start together one migrates and
/// the others find it done. Refuses a store of a newer version, and one whose applied migrations differ.
pub(crate) async fn run(connection: &mut Connection, dialect: Dialect) -> Result<(), StoreError> {
    let versions = "create table if not exists schema_versions (version bigint primary key, checksum text not null)";
    connection.run(versions).await?;
    let mut applied = applied(connection).await?;
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > NEWEST) {
        return Err(StoreError::TooNew { found: *found, known: NEWEST });
    }
    if applied.is_empty() {
        applied = begin_with_baseline(connection, dialect).await?;
    }
    for (version, sql) in MIGRATIONS {
        let checksum = checksum(sql, dialect.extra_migration(*version));
        match applied.iter().find(|(known, _)| known == version) {
            Some((_, kept)) if *kept == checksum => {}
            Some(_) => return Err(edited(*version)),
            None => {
                let applied = apply(connection, dialect, *version, sql, checksum).await;
                applied.map_err(|error| migration_error(*version, error))?;
            }
        }
    }
    Ok(())
}

/// Creates the schema of [`BASELINE`] in an empty database, and returns the versions that it contains.
async fn begin_with_baseline(connection: &mut Connection, dialect: Dialect) -> Result<Vec<(i64, String)>, StoreError> {
    let (version, portable) = BASELINE;
    let contained: Vec<(i64, String)> = MIGRATIONS
        .iter()
        .filter(|(of, _)| *of <= version)
        .map(|(of, sql)| (*of, checksum(sql, dialect.extra_migration(*of))))
        .collect();
    let rows: Vec<String> = contained.iter().map(|(of, checksum)| format!("({of}, '{checksum}')")).collect();
    let sql = format!(
        "{}\n{}\ninsert into schema_versions (version, checksum) values {};",
        dialect.migration(portable),
        dialect.extra_baseline(),
        rows.join(", ")
    );
    connection.run(sql).await.map_err(|error| migration_error(version, error))?;
    Ok(contained)
}

/// Refuses a store whose applied migrations differ from this version's. Changes nothing.
pub(crate) async fn check(connection: &mut Connection) -> Result<(), StoreError> {
    let dialect = match connection {
        Connection::Sqlite(_) => Dialect::Sqlite,
        Connection::Postgres(_) => Dialect::Postgres,
    };
    let applied = applied(connection).await?;
    for (version, sql) in MIGRATIONS {
        let checksum = checksum(sql, dialect.extra_migration(*version));
        if let Some((_, kept)) = applied.iter().find(|(known, _)| known == version)
            && *kept != checksum
        {
            return Err(edited(*version));
        }
    }
    Ok(())
}

fn edited(version: i64) -> StoreError {
    let why = format!("migration {version} differs from the one that was applied");
    StoreError::corrupt("schema_versions", version, "checksum", why)
}

/// Converts an error of a migration. Errors of a busy, full or unreachable database are not attributed to the
/// migration.
fn migration_error(version: i64, error: StoreError) -> StoreError {
    match error {
        StoreError::Database(detail) => StoreError::Migration { version, detail },
        other => other,
    }
}

/// Returns the newest applied version, without changing anything; `None` if none was applied.
pub(crate) async fn newest_applied(connection: &mut Connection, tables: &[String]) -> Result<Option<i64>, StoreError> {
    if !tables.iter().any(|table| table == "schema_versions") {
        return Ok(None);
    }
    let found = applied(connection).await?.last().map(|(version, _)| *version);
    match found {
        Some(found) if found > NEWEST => Err(StoreError::TooNew { found, known: NEWEST }),
        found => Ok(found),
    }
}

async fn applied(connection: &mut Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "select version, checksum from schema_versions order by version";
    let rows = connection.rows(sql, Vec::new(), usize::MAX).await?;
    rows.iter().map(|row| Ok((row.int("version")?, row.text("checksum")?.to_owned()))).collect()
}

async fn apply(
    connection: &mut Connection,
    dialect: Dialect,
    version: i64,
    sql: &'static str,
    checksum: String,
) -> Result<(), StoreError> {
    connection.run(dialect.migration(sql)).await?;
    if let Some(extra) = dialect.extra_migration(version) {
        connection.run(extra).await?;
    }
    let values = vec![Value::Int(version), Value::Text(checksum)];
    connection.execute("insert into schema_versions (version, checksum) values ($1, $2)", values).await?;
    Ok(())
}

/// FNV-1a of the text. Guards against accidental edits, not against an attacker, who could change the rows too.
fn checksum(sql: &str, extra: Option<&str>) -> String {
    let bytes = sql.bytes().chain(extra.unwrap_or_default().bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}
