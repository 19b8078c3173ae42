//! Checks that only the listed statements scan a whole table. No task, request or event waits for one of them.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use gpuaas_store::{Store, StoreOptions};
use gpuaas_test_support::{DatabaseFile, ManualClock};

/// Statements that may scan a table, by their first words, and the reason.
const SCANS: &[(&str, &str)] = &[
    ("delete from enrollments", "a restore deletes all of them"),
    ("delete from leases where (name like", "once an hour; at most one row per node and operation"),
    ("select name from leases where (name like", "once an hour; at most one row per node and operation"),
    ("select coalesce(s.tbl_name, p.name) as name", "measures the whole file, at most 1 % of the time"),
    ("select f.freelist_count", "measures the whole file"),
    ("update leases set expires_at = 0 where holder", "a replica has died; one row per node"),
    ("select connectivity, count(*)", "counted for metrics, at most every few seconds"),
    ("select id, node_id, sha256, doc, code from enrollments", "a rotation of the sealing key"),
    ("select id, state, version, sealed_key, doc, code from authorities", "only a few rows"),
    ("select name from sqlite_master", "inspects a store before it is opened"),
    ("select name, lower(type) as type from pragma_table_info", "the columns of a table, for a backup"),
    ("select n.name as name, n.lowest", "gpuaas server verify reads all of it"),
    ("select token_id || '/' || key as id, doc from idempotency", "a rotation of the sealing key"),
    ("select count(*) as rows from idempotency", "gpuaas server verify reads all of it"),
    ("select * from secrets order by id", "a restore opens all of them"),
    (
        "select id, sha256, project_id, service_account_id, ends_at, doc, code from tokens order by id",
        "a restore deletes all of them",
    ),
    ("select id from authorities", "only a few rows"),
    ("select key_id from signing_keys", "only a few rows"),
    ("select key_id as id, state, version, seed, doc, code from signing_keys order by key_id", "only a few rows"),
    ("select version, checksum from schema_versions", "only a few rows, at a start"),
    ("select name from leases where holder", "a replica has died; at most one row per node and operation"),
    (
        "select node_id, doc from sessions order by node_id",
        "a rotation of keys reads all connections; one row per node",
    ),
    ("select node_id, epoch, max(created_at) as newest from node_keys", "a rotation of the authority"),
    ("select stream from streams", "once an hour; one row per project"),
    ("select sha256 from archives order by id", "a backup reads all of them"),
    ("select sequence, at from audit order by sequence desc limit 1", "reads one row"),
    (
        "insert into events (sequence, stream, at, kind, subject_kind, subject_id",
        "an import of a release is written to every project",
    ),
    (
        "insert into streams (stream, last_sequence) select 'project/'",
        "an import of a release is written to every project",
    ),
];

/// The SQL statements in this crate's source, except those that are assembled at run time.
fn statements() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for file in fs::read_dir(source).unwrap().flatten().filter(|file| file.path().is_file()) {
        let text = fs::read_to_string(file.path()).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for literal in text.split('"') {
            let literal: String = literal.split("\\\n").map(str::trim_start).collect();
            let is_statement = ["select ", "insert into ", "update ", "delete from ", "with "]
                .iter()
                .any(|verb| literal.starts_with(verb));
            let is_complete = !literal.contains('{') && !literal.ends_with([' ', '(']);
            let is_of_postgres = ["pg_", "information_schema"].iter().any(|name| literal.contains(name));
            if is_statement && is_complete && !is_of_postgres {
                found.insert(literal);
            }
        }
    }
    found
}

#[test]
fn statement_that_yields_a_document_yields_the_key_of_its_row() {
    let without: Vec<_> = statements().into_iter().filter(|sql| sql.starts_with("select doc ")).collect();
    assert!(without.is_empty(), "errors could not name the row: {without:?}");
}

#[tokio::test]
async fn statements_with_full_scans_are_listed() {
    let database = DatabaseFile::new();
    let options = StoreOptions { url: database.url() };
    Store::open(&options, Arc::new(ManualClock::default())).await.unwrap().close().await;
    let store = rusqlite::Connection::open(database.path()).unwrap();
    let statements = statements();
    assert!(statements.len() > 100, "{} statements were found", statements.len());
    let mut indexes =
        store.prepare("select name from sqlite_master where type = 'index' and sql like '% where %'").unwrap();
    let partial =
        indexes.query_map([], |row| row.get::<_, String>("name")).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let mut scans = BTreeSet::new();
    for statement in &statements {
        let plan = store.prepare(&format!("explain query plan {statement}"));
        let mut plan = plan.unwrap_or_else(|error| panic!("{statement}: {error}"));
        let steps =
            plan.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>().unwrap();
        // A list parameter and a constant row are not tables.
        let is_of_table = |step: &String| !step.contains("json_each") && step != "SCAN CONSTANT ROW";
        // Scanning an index reads as many rows as the table has, unless the index is partial.
        let is_of_some = |step: &String| partial.iter().any(|index| step.ends_with(&format!(" INDEX {index}")));
        let is_scan = |step: &String| step.starts_with("SCAN ") && is_of_table(step) && !is_of_some(step);
        if steps.iter().any(is_scan) {
            scans.insert(statement.as_str());
        }
    }
    let unknown: Vec<_> = scans.iter().filter(|scan| !SCANS.iter().any(|(known, _)| scan.starts_with(known))).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let gone: Vec<_> = SCANS.iter().filter(|(known, _)| !scans.iter().any(|scan| scan.starts_with(known))).collect();
    assert!(gone.is_empty(), "no longer scans: {gone:#?}");
}
