//! Forward-only migrations, checked at every start.

use sqlx::{Any, Row, Transaction};

use crate::{dialect::Dialect, error::StoreError};

/// Every migration, oldest first. One that has been released is never changed.
const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("../migrations/0001_initial.sql")),
    (2, include_str!("../migrations/0002_replicas.sql")),
    (3, include_str!("../migrations/0003_keys_and_service_accounts.sql")),
    (4, include_str!("../migrations/0004_what_is_counted_and_purged.sql")),
    (5, include_str!("../migrations/0005_machines_that_change_hands.sql")),
    (6, include_str!("../migrations/0006_bootstrapped_once.sql")),
    (7, include_str!("../migrations/0007_authorities.sql")),
    (8, include_str!("../migrations/0008_service_accounts_with_codes.sql")),
];

/// The newest schema that this version knows.
pub(crate) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// Applies what is missing, all in one change, so that of several replicas that start together one migrates and the others find it done.
/// Refuses a store from a newer version or with a changed history.
pub(crate) async fn run(mut change: Transaction<'static, Any>, dialect: Dialect) -> Result<(), StoreError> {
    sqlx::raw_sql("create table if not exists schema_versions (version bigint primary key, checksum text not null)")
        .execute(&mut *change)
        .await?;
    let applied = applied(&mut change).await?;
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > NEWEST) {
        return Err(StoreError::TooNew { found: *found, known: NEWEST });
    }
    for (version, sql) in MIGRATIONS {
        let checksum = checksum(sql, dialect.extra_migration(*version));
        match applied.iter().find(|(known, _)| known == version) {
            Some((_, kept)) if *kept == checksum => {}
            Some(_) => return Err(StoreError::Corrupt(format!("migration {version} is not the one that was applied"))),
            None => apply(&mut change, dialect, *version, sql, checksum).await?,
        }
    }
    Ok(change.commit().await?)
}

async fn applied(change: &mut Transaction<'static, Any>) -> Result<Vec<(i64, String)>, StoreError> {
    let rows =
        sqlx::query("select version, checksum from schema_versions order by version").fetch_all(&mut **change).await?;
    rows.iter().map(|row| Ok((row.try_get("version")?, row.try_get("checksum")?))).collect()
}

async fn apply(
    change: &mut Transaction<'static, Any>,
    dialect: Dialect,
    version: i64,
    sql: &'static str,
    checksum: String,
) -> Result<(), StoreError> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(dialect.migration(sql).into_owned())).execute(&mut **change).await?;
    if let Some(extra) = dialect.extra_migration(version) {
        sqlx::raw_sql(extra).execute(&mut **change).await?;
    }
    sqlx::query("insert into schema_versions (version, checksum) values ($1, $2)")
        .bind(version)
        .bind(checksum)
        .execute(&mut **change)
        .await?;
    Ok(())
}

/// FNV-1a over the text: it guards against a slip of a hand, not against an enemy, who could change the rows as well.
fn checksum(sql: &str, extra: Option<&str>) -> String {
    let bytes = sql.bytes().chain(extra.unwrap_or_default().bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}
