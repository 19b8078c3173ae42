//! Dump and restore of rows that are generated from the schema, with every column filled or null.

use gpuaas_store::Store;

use super::database::Database;

/// Nullable columns, one of each type. The test adds them to every table, in addition to those that migrations created.
const NULLABLE: [(&str, &str); 3] = [("more_text", "text"), ("more_int", "bigint"), ("more_blob", "blob")];
/// An integer that a 64-bit floating-point number cannot represent.
const LARGE: i64 = (1 << 53) + 1;

struct Column {
    name: String,
    kind: String,
    is_nullable: bool,
}

fn tables() -> impl Iterator<Item = &'static str> {
    Store::dumped_tables().filter_map(|(table, is_dumped)| is_dumped.then_some(table))
}

async fn columns(database: &Database, table: &str) -> Vec<Column> {
    let sql = match database.is_shared() {
        true => format!(
            "select column_name || ' ' || data_type || ' ' || is_nullable from information_schema.columns \
             where table_schema = 'public' and table_name = '{table}' order by ordinal_position"
        ),
        // SQLite's schema lists primary keys as nullable; in this schema they never are.
        false => format!(
            "select name || ' ' || lower(type) || ' ' || case when \"notnull\" = 0 and pk = 0 then 'YES' else 'NO' end \
             from pragma_table_info('{table}')"
        ),
    };
    let found = database.texts(&sql).await;
    let parts = found.iter().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    parts
        .map(|parts| Column { name: parts[0].clone(), kind: parts[1].clone(), is_nullable: parts[2] == "YES" })
        .collect()
}

/// Opens the store after adding the nullable columns to every table.
async fn widened(database: &Database) -> Store {
    database.open().await.close().await;
    for table in tables() {
        for (name, kind) in NULLABLE {
            let kind = if database.is_shared() { kind.replace("blob", "bytea") } else { kind.to_owned() };
            database.sql(&format!("alter table {table} add column {name} {kind}")).await.unwrap();
        }
    }
    database.open().await
}

/// A value of a column, as SQL. All texts are equal, so that rows satisfy references to other tables.
fn literal(database: &Database, column: &Column, is_full: bool) -> String {
    match (column.kind.as_str(), is_full) {
        (_, false) if column.is_nullable => "null".to_owned(),
        ("bigint", true) => LARGE.to_string(),
        ("bigint", false) => "-1".to_owned(),
        ("text", true) => "'a \"''\\ \u{1d11e}\ne\u{301}'".to_owned(),
        ("text", false) => "''".to_owned(),
        (_, is_full) => {
            let bytes = if is_full { "00ff0a22" } else { "" };
            if database.is_shared() { format!("'\\x{bytes}'") } else { format!("x'{bytes}'") }
        }
    }
}

/// All rows of a table as texts, without the columns that a restore changes.
async fn rows(database: &Database, table: &str) -> Vec<String> {
    let changed = |name: &str| table == "leases" && matches!(name, "fence" | "expires_at");
    let columns = columns(database, table).await;
    let texts = columns.iter().filter(|column| !changed(&column.name)).map(|Column { name, kind, .. }| {
        let text = match kind.as_str() {
            "text" => name.clone(),
            "bigint" => format!("cast({name} as text)"),
            "blob" => format!("lower(hex({name}))"),
            "bytea" => format!("encode({name}, 'hex')"),
            other => panic!("{table}.{name} has the type {other}, which dumps do not support"),
        };
        format!("case when {name} is null then '<null>' else '{name}=' || {text} end")
    });
    let texts = texts.collect::<Vec<_>>().join(" || '|' || ");
    let of_restore =
        if table == "settings" { " where name not in ('restore.unfinished', 'history.generation')" } else { "" };
    let mut rows = database.texts(&format!("select {texts} from {table}{of_restore}")).await;
    rows.sort();
    rows
}

async fn all_rows(database: &Database) -> Vec<(&'static str, Vec<String>)> {
    let mut all = Vec::new();
    for table in tables() {
        all.push((table, rows(database, table).await));
    }
    all
}

async fn restored(rows: &[u8], into: &Database) -> Vec<u8> {
    let store = widened(into).await;
    store.restore(&mut &rows[..]).await.unwrap();
    let mut again = Vec::new();
    store.dump(&mut again).await.unwrap();
    store.close().await;
    again
}

pub(crate) async fn every_column_survives_dump_and_restore_on_both_databases(database: Database) {
    let store = widened(&database).await;
    for table in tables() {
        let columns = columns(&database, table).await;
        assert!(columns.iter().filter(|column| column.is_nullable).count() >= NULLABLE.len(), "{table}");
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        for is_full in [true, false] {
            let values: Vec<String> = columns.iter().map(|column| literal(&database, column, is_full)).collect();
            let sql = format!("insert into {table} ({}) values ({})", names.join(", "), values.join(", "));
            database.sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    let expected = all_rows(&database).await;
    assert!(expected.iter().all(|(_, rows)| rows.len() == 2 && rows.concat().contains("<null>")), "{expected:#?}");
    let mut dumped = Vec::new();
    store.dump(&mut dumped).await.unwrap();
    store.close().await;
    for other in [Database::sqlite().await, Database::postgres().await] {
        let again = restored(&dumped, &other).await;
        assert_eq!(all_rows(&other).await, expected);
        let back = if database.is_shared() { Database::postgres().await } else { Database::sqlite().await };
        // The first restore added rows about itself, with which a second restore would conflict.
        let again = String::from_utf8(again).unwrap();
        let (lines, mark): (Vec<_>, Vec<_>) = again
            .lines()
            .partition(|line| !line.contains("restore.unfinished") && !line.contains("history.generation"));
        assert_eq!(mark.len(), 2, "{mark:?}");
        let count = |count: usize| format!("{{\"end\":{{\"rows\":{count}}}}}");
        let total = 2 * tables().count();
        let again = lines.join("\n").replace(&count(total + 2), &count(total)) + "\n";
        restored(again.as_bytes(), &back).await;
        assert_eq!(all_rows(&back).await, expected, "after the second restore");
    }
}

pub(crate) async fn a_value_of_another_type_than_its_column_is_refused(database: Database) {
    let store = database.open().await;
    let dump = |row: &str| {
        let newest = Store::newest_schema();
        format!(
            "{{\"schema\":{newest}}}\n{{\"table\":{{\"name\":\"streams\",\"columns\":[\"stream\",\"last_sequence\"]}}}}\n\
             {{\"row\":{row}}}\n{{\"end\":{{\"rows\":1}}}}\n"
        )
    };
    for bad in [
        "[\"platform\",\"1\"]",
        "[1,1]",
        "[{\"hex\":\"00\"},1]",
        "[\"plat\\u0000form\",1]",
        "[\"platform\",null]",
        "[\"platform\"]",
    ] {
        let refused = store.restore(&mut dump(bad).as_bytes()).await.expect_err(bad);
        assert!(matches!(refused, gpuaas_store::DumpError::Malformed { line: 3, .. }), "{bad}: {refused}");
    }
    store.restore(&mut dump("[\"platform\",1]").as_bytes()).await.expect("refused dumps left no rows");
}

pub(crate) async fn restore_target_is_inspected_without_changes(database: Database) {
    let options = gpuaas_store::StoreOptions { url: database.url.clone() };
    let inspect = async || Store::inspect_restore_target(&options).await.unwrap();
    let is_there =
        || database.is_shared() || std::path::Path::new(database.url.trim_start_matches("sqlite://")).exists();
    assert_eq!(inspect().await, gpuaas_store::RestoreTarget::default());
    assert!(database.is_shared() || !is_there(), "the inspection created the file");
    if database.is_shared() {
        assert_eq!(database.number(database.tables()).await, 0, "the inspection created the schema");
    }
    let store = database.open().await;
    assert_eq!(inspect().await, gpuaas_store::RestoreTarget::default(), "a schema without rows is empty");
    let mut tx = store.begin().await.unwrap();
    tx.put_setting_if_absent(gpuaas_store::RESTORE_ID, b"this one").await.unwrap();
    tx.commit().await.unwrap();
    let found = inspect().await;
    assert_eq!((found.rows_in, found.restore_id.as_deref()), (Some("settings"), Some("this one")));
}

pub(crate) async fn failed_fill_leaves_no_schema_and_a_successful_one_changes_no_row(database: Database) {
    let source = Database::sqlite().await;
    let store = source.open().await;
    super::given::allocated_node(&store, "gpu-1").await;
    let mut dumped = Vec::new();
    store.dump(&mut dumped).await.unwrap();
    store.close().await;
    let (options, clock) = (gpuaas_store::StoreOptions { url: database.url.clone() }, database.clock());
    let torn = &dumped[..dumped.len() - 20];
    Store::fill(&options, clock.clone(), &mut &torn[..]).await.expect_err("the dump is incomplete");
    assert_eq!(database.number(database.tables()).await, 0, "a part of the failed fill was committed");
    Store::fill(&options, clock, &mut &dumped[..]).await.unwrap();
    assert_eq!(all_rows(&database).await, all_rows(&source).await);
    assert_eq!(database.number("select count(*) from settings where name = 'restore.unfinished'").await, 0);
}
