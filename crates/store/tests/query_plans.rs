//! Which statements look at every row of a table: few, each known by name, and none that a task, a request or an event waits for.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use gpuaas_model::{Clock, Timestamp};
use gpuaas_store::{Store, StoreOptions};

/// Statements that may, by how they begin, and why.
const SCANS: &[(&str, &str)] = &[
    ("delete from enrollments", "a restore ends them all"),
    ("delete from leases where (name like", "once an hour; as many as there are nodes and operations"),
    ("select name from leases where (name like", "once an hour; as many as there are nodes and operations"),
    ("select coalesce(s.tbl_name, p.name) as name", "measures the whole file, at most for a hundredth of the time"),
    ("select f.freelist_count", "measures the whole file"),
    ("update leases set expires_at = 0 where holder", "a replica has died; as many as there are nodes"),
    ("select connectivity, count(*)", "counted for metrics, once a few seconds at most"),
    ("select lifecycle, health, count(*)", "counted for metrics and for an overview"),
    ("select id, node_id, sha256, doc, code from enrollments", "another sealing key"),
    ("select id, state, version, sealed_key, doc, code from authorities", "a few, ever"),
    ("select name from sqlite_master", "what a store holds, before it is opened"),
    ("select name, lower(type) as type from pragma_table_info", "the columns of a table, for a backup"),
    ("select n.name as name, n.lowest", "gpuaas server verify reads all of it"),
    ("select token_id || '/' || key as id, doc from idempotency", "another sealing key"),
];

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }
}

/// The statements of this crate as they stand in its source, without those that are put together.
fn statements() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for file in fs::read_dir(source).unwrap().flatten().filter(|file| file.path().is_file()) {
        let text = fs::read_to_string(file.path()).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for literal in text.split('"') {
            let literal: String = literal.split("\\\n").map(str::trim_start).collect();
            let is_statement =
                ["select ", "insert into ", "update ", "delete from "].iter().any(|verb| literal.starts_with(verb));
            if is_statement && !literal.contains('{') && !literal.contains("pg_") {
                found.insert(literal);
            }
        }
    }
    found
}

#[test]
fn statement_that_yields_a_document_yields_the_key_of_its_row() {
    let without: Vec<_> = statements().into_iter().filter(|sql| sql.starts_with("select doc ")).collect();
    assert!(without.is_empty(), "a row that cannot be read would have no name: {without:?}");
}

#[tokio::test]
async fn statements_that_look_at_every_row_are_few_and_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite://{}", file.display());
    Store::open(&StoreOptions { url }, Arc::new(Noon)).await.unwrap().close().await;
    let store = rusqlite::Connection::open(&file).unwrap();
    let statements = statements();
    assert!(statements.len() > 100, "{} statements were found", statements.len());
    let mut scans = BTreeSet::new();
    for statement in &statements {
        let Ok(mut plan) = store.prepare(&format!("explain query plan {statement}")) else { continue };
        let steps =
            plan.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>().unwrap();
        // A list among the values is no table, nor is the one row of values alone.
        let is_of_table = |step: &String| !step.contains("json_each") && step != "SCAN CONSTANT ROW";
        let is_scan = |step: &String| step.starts_with("SCAN ") && !step.contains(" USING ") && is_of_table(step);
        if steps.iter().any(is_scan) {
            scans.insert(statement.as_str());
        }
    }
    let unknown: Vec<_> = scans.iter().filter(|scan| !SCANS.iter().any(|(known, _)| scan.starts_with(known))).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let gone: Vec<_> = SCANS.iter().filter(|(known, _)| !scans.iter().any(|scan| scan.starts_with(known))).collect();
    assert!(gone.is_empty(), "no longer scans: {gone:#?}");
}
