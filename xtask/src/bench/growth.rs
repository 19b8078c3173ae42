//! `cargo xtask bench growth`: bytes that operations and idempotency keys leave in the database.

use std::collections::BTreeMap;

use anyhow::Context;
use camino::Utf8Path;
use gpuaas_api_types::CreateProject;
use sqlx::{Connection, PgConnection, Row};

use super::{
    Chosen,
    control_plane::{ControlPlane, Place},
    figures::{self, Figure},
};
use crate::demo::Store;

/// Options of `bench growth`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of operations: half of them deploy a workload on a node, the other half decommission it.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1_000))]
    operations: u16,
    /// Number of requests with an idempotency key.
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    keys: u16,
    /// Cargo profile of the measured programs; it does not affect the rows.
    #[arg(long, default_value = "dev")]
    profile: String,
    #[command(flatten)]
    chosen: Chosen,
}

/// Name of the figure for the whole database.
const TOTAL: &str = "the whole database";
/// Table of idempotency keys.
const KEYS: &str = "idempotency";
/// Query for sizes of tables with their indexes. In SQLite an index has its own pages.
const SIZES_OF_SQLITE: &str = "select coalesce(s.tbl_name, p.name) as name, cast(sum(p.pgsize) as bigint) as bytes from dbstat p \
     left join sqlite_schema s on s.name = p.name group by 1";
const SIZES_OF_POSTGRES: &str = "select cast(relname as text) as name, pg_total_relation_size(oid) as bytes from pg_class \
     where relkind = 'r' and relnamespace = 'public'::regnamespace";
const TOTAL_OF_SQLITE: &str =
    "select c.page_count * s.page_size as bytes from pragma_page_count() c, pragma_page_size() s";
const TOTAL_OF_POSTGRES: &str = "select pg_database_size(current_database()) as bytes";

/// Runs the benchmark.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.chosen.programs(&options.profile)?;
    let mut columns = Vec::new();
    for store in options.chosen.stores() {
        let mut figures = of_operations(options, store)?;
        figures.extend(super::block_on(of_keys(options, &programs, store))?);
        columns.push((store, figures));
    }
    println!(
        "Operations run in the real engine with simulated nodes: half deploy one server each, half decommission it. Sizes are the difference between"
    );
    println!(
        "a database with them and one without, each after its engine has ended: pages of tables with their indexes (dbstat; on PostgreSQL"
    );
    println!(
        "pg_total_relation_size without an explicit vacuum, so old versions of updated rows count until autovacuum removes them)."
    );
    println!(
        "Idempotency keys come with POST /api/v1/projects to a real control plane; the stored responses are small."
    );
    let title =
        format!("growth, profile {}, {} operations, {} keys", options.profile, options.operations, options.keys);
    figures::side_by_side(&title, &columns);
    Ok(())
}

/// Bytes per table, and of the whole database.
type Sizes = BTreeMap<String, f64>;

/// Measures the growth by operations: the difference between databases with and without them, with the same nodes and allocations.
fn of_operations(options: &Options, store: Store) -> anyhow::Result<Vec<Figure>> {
    let (without, with) = (after(options, store, 0)?, after(options, store, options.operations)?);
    let each = |name: &String| {
        let before = without.get(name).copied().unwrap_or_default();
        let bytes = (with.get(name).copied().unwrap_or_default() - before) / f64::from(options.operations);
        Figure::new(name, "B", bytes).of("per operation")
    };
    Ok(with.keys().filter(|name| is_table_of_operations(name)).map(each).collect())
}

/// Sizes of a fresh database with half as many nodes as `options.operations`, after this number of operations.
fn after(options: &Options, store: Store, operations: u16) -> anyhow::Result<Sizes> {
    let place = super::block_on(Place::fresh(store))?;
    std::fs::create_dir_all(place.folder_of_rows()?)?;
    let url = place.url()?;
    let (nodes, operations) = ((options.operations / 2).to_string(), operations.to_string());
    super::run_engine_bench(&["grow", &url, &nodes, &operations], &options.profile)?;
    super::block_on(sizes(&url, store))
}

/// Reports whether to print a table: not the idempotency keys, and not SQLite's internal ones, so that both databases print the same lines.
fn is_table_of_operations(name: &str) -> bool {
    !name.starts_with("sqlite_") && name != KEYS
}

async fn of_keys(options: &Options, programs: &Utf8Path, store: Store) -> anyhow::Result<Vec<Figure>> {
    let place = Place::fresh(store).await?;
    let plane = ControlPlane::start(programs, &place, 0).await?;
    let client = plane.client()?;
    let before = sizes(&place.url()?, store).await?;
    for number in 0..options.keys {
        let keyed = client.clone().with_idempotency_key(format!("bench-growth-{number:04}-of-one-client"));
        keyed.create_project(&CreateProject { name: format!("growth-{number}") }).await?;
    }
    plane.stop();
    let after = sizes(&place.url()?, store).await?;
    let size = |sizes: &Sizes| sizes.get(KEYS).copied().context("the database has no table of idempotency keys");
    Ok(vec![Figure::new("per idempotency key", "B", (size(&after)? - size(&before)?) / f64::from(options.keys))])
}

async fn sizes(url: &str, store: Store) -> anyhow::Result<Sizes> {
    match store {
        Store::Sqlite => sizes_of_file(url.strip_prefix("sqlite://").context("the URL names no SQLite file")?),
        Store::Postgres => sizes_of_server(url).await,
    }
}

fn sizes_of_file(file: &str) -> anyhow::Result<Sizes> {
    let connection = rusqlite::Connection::open(file).context("opening the database")?;
    let mut tables = connection.prepare(SIZES_OF_SQLITE)?;
    let rows = tables.query_map([], |row| Ok((row.get("name")?, row.get::<_, i64>("bytes")? as f64)))?;
    let mut sizes = rows.collect::<Result<Sizes, _>>().context("reading the sizes of tables")?;
    let total: i64 = connection.query_row(TOTAL_OF_SQLITE, [], |row| row.get("bytes"))?;
    sizes.insert(TOTAL.to_owned(), total as f64);
    Ok(sizes)
}

async fn sizes_of_server(url: &str) -> anyhow::Result<Sizes> {
    let mut connection = PgConnection::connect(url).await.context("opening the database")?;
    let mut sizes = Sizes::new();
    let tables = sqlx::query(SIZES_OF_POSTGRES).fetch_all(&mut connection).await;
    for row in tables.context("reading the sizes of tables")? {
        sizes.insert(row.try_get("name")?, row.try_get::<i64, _>("bytes")? as f64);
    }
    let total = sqlx::query(TOTAL_OF_POSTGRES).fetch_one(&mut connection).await;
    let total: i64 = total.context("reading the size of the database")?.try_get("bytes")?;
    sizes.insert(TOTAL.to_owned(), total as f64);
    connection.close().await?;
    Ok(sizes)
}
