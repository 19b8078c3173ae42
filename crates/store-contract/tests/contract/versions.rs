//! Upgrades of databases of every schema version, whose rows are stored as SQL under `tests/versions`: each gets the schema of a fresh
//! database and keeps its rows.

use std::{fs, path::PathBuf};

use gpuaas_model::{
    AllocationId, AuditAction, Endpoint, Health, MemberState, MemberStateName, NodeId, OperationId, OperationKind,
    ProjectId, StreamName, TaskId, Timestamp, TokenId, WorkloadId,
};
use gpuaas_planner::{Drift, judgments::Source, report::Judgment};
use gpuaas_store::{AuditFilter, ByPlatform, Page, Store};

use super::database::Database;

/// An id in the stored databases; the ids differ in their last two digits.
fn id<T: std::str::FromStr>(last: &str) -> T {
    format!("0198c0de-7a3b-7c11-9b54-0242ac1200{last}").parse().ok().expect("a UUID")
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn file(version: i64) -> PathBuf {
    folder("tests/versions").join(format!("{version:04}.sql"))
}

/// The database of a version as that version wrote it, in this backend's SQL dialect: the schema of the migrations up to it, which their
/// checksums among the rows protect from changes, and its rows. A file has the rows of its version that differ from those of the version
/// before: each replaces the one with the same first column, and `delete` removes one.
fn stored_database(version: i64, is_shared: bool) -> String {
    let dialect = if is_shared { "postgres" } else { "sqlite" };
    let mut sql = vec!["create table schema_versions (version bigint primary key, checksum text not null);".to_owned()];
    let mut rows: Vec<String> = Vec::new();
    for version in 1..=version {
        sql.extend(["".to_owned(), format!("{dialect}_")].iter().filter_map(|prefix| migration(prefix, version)));
        for row in stored_rows(version, dialect) {
            let earlier = rows.iter().position(|earlier| key(earlier) == key(&row));
            match (earlier, row.starts_with("delete ")) {
                (Some(at), true) => drop(rows.remove(at)),
                (Some(at), false) => rows[at] = row,
                (None, false) => rows.push(row),
                (None, true) => panic!("version {version} has no such row: {row}"),
            }
        }
    }
    let text = [sql, rows].concat().join("\n");
    if is_shared { text.replace(" blob ", " bytea ").replace(" x'", " '\\x") } else { text }
}

/// The text of the migration to a version, of which there can be a part for both dialects and one for each.
fn migration(prefix: &str, version: i64) -> Option<String> {
    let (begin, files) = (format!("{prefix}{version:04}_"), fs::read_dir(folder("../store/migrations")).unwrap());
    let file = files.map(|file| file.unwrap()).find(|file| file.file_name().to_string_lossy().starts_with(&begin))?;
    Some(fs::read_to_string(file.path()).unwrap())
}

/// The statements in the file of a version, without those for the other dialect.
fn stored_rows(version: i64, dialect: &str) -> Vec<String> {
    let path = file(version);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}. Keep the rows of schema version {version}: the checksum of its migration, a row for every table \
             that is new, and each row that this version writes in another form than the one before",
            path.display()
        )
    });
    let mut is_included = true;
    let lines = text.lines().filter(|line| {
        let mark = line.strip_prefix("-- for ");
        is_included = mark.map_or(is_included, |mark| mark == "both" || mark == dialect);
        is_included && mark.is_none()
    });
    lines.map(str::to_owned).collect()
}

/// The table and the first column of the row that a statement inserts or deletes.
fn key(statement: &str) -> (&str, &str) {
    let value = statement.split_once(" values (").and_then(|(_, values)| values.split(',').next());
    let deleted = || statement.trim_end_matches(';').split_once(" = ").map(|(_, value)| value);
    let table = statement.split(' ').nth(2).expect("a table");
    (table, value.or_else(deleted).expect("a first column"))
}

/// The schema as one line per object, independent of the order of creation.
async fn schema(database: &Database) -> Vec<String> {
    let sqlite = ["select type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') from sqlite_master"];
    let postgres = [
        "select table_name || '.' || column_name || ' ' || ordinal_position || ' ' || data_type || ' ' || is_nullable || ' ' || \
         coalesce(column_default, '') from information_schema.columns where table_schema = 'public'",
        "select indexdef from pg_indexes where schemaname = 'public'",
        "select conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) from pg_constraint \
         where connamespace = 'public'::regnamespace",
        "select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal",
        "select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace",
    ];
    let statements = if database.is_shared() { &postgres[..] } else { &sqlite[..] };
    let mut lines = Vec::new();
    for statement in statements {
        let found = database.texts(statement).await;
        lines.extend(found.iter().map(|line| without_layout(line)));
    }
    lines.sort();
    lines
}

/// Normalizes the white space of a statement, which layout and `alter table` change.
fn without_layout(statement: &str) -> String {
    let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace(" ,", ",").replace("( ", "(").replace(" )", ")")
}

async fn fresh(is_shared: bool) -> Database {
    if is_shared { Database::postgres().await } else { Database::sqlite().await }
}

/// The number of rows of each existing table.
async fn counts(database: &Database) -> Vec<(&'static str, i64)> {
    let mut counts = Vec::new();
    for (table, _) in Store::dumped_tables() {
        let is_there = match database.is_shared() {
            true => format!("select count(*) from information_schema.tables where table_name = '{table}'"),
            false => format!("select count(*) from sqlite_master where type = 'table' and name = '{table}'"),
        };
        if database.number(&is_there).await > 0 && table != "schema_versions" {
            counts.push((table, database.number(&format!("select count(*) from {table}")).await));
        }
    }
    counts
}

/// By how many rows of a table an upgrade from `version` changes the count.
fn changed(version: i64, table: &str) -> i64 {
    match table {
        // Rows without codes would be rejected as forged.
        "enrollments" if version < 5 => -2,
        // So would their accounts' tokens: the others stay.
        "service_accounts" if (3..8).contains(&version) => -1,
        "tokens" if (3..8).contains(&version) => -1,
        // The setting that records that the first administrator was created.
        "settings" if version < 6 => 1,
        _ => 0,
    }
}

async fn newest(database: &Database) -> i64 {
    database.open().await.close().await;
    database.number("select max(version) from schema_versions").await
}

async fn assert_rows_readable(store: &Store) {
    store.read_every_row().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.project(id::<ProjectId>("01")).await.unwrap().name.as_str(), "lab");
    let node = reader.node(id::<NodeId>("04")).await.unwrap();
    assert_eq!((node.address(), node.labels["rack"].as_str(), node.epoch), ("10.0.0.7", "r'7", 2));
    assert_eq!(reader.allocation(id::<AllocationId>("06")).await.unwrap().generation, 3);
    let artifacts = reader.artifacts(None, None).await.unwrap();
    assert_eq!(artifacts[0].size_bytes, 9_007_199_254_740_993);
    let workload = reader.workload(id::<WorkloadId>("08")).await.unwrap();
    assert_eq!(workload.config["label"], "ä\"'\\ 𝄞");
    let members = reader.members_of(workload.id).await.unwrap();
    assert!(matches!(members[0].state, MemberState::Ready { .. }));
    let steps = reader.steps_of(id::<OperationId>("0a")).await.unwrap();
    assert_eq!(steps[0].task, Some(id::<TaskId>("0c")));
    assert_eq!(reader.task(id::<TaskId>("0c")).await.unwrap().fence, 4);
    assert_eq!(reader.secrets_of(workload.id).await.unwrap()[0].sealed, [0, 255, 10, 34]);
    assert_eq!(reader.events(StreamName::Platform, 0, Page::LIMIT_MAX).await.unwrap().len(), 1);
    let audits = reader.audits(&AuditFilter::default()).await.unwrap();
    assert_eq!((audits.len(), audits[0].action), (1, AuditAction::NodeRegister));
    for setting in ["control-plane.id", "bootstrap.done"] {
        assert_eq!(reader.setting(setting).await.unwrap(), Some(b"cp-1".to_vec()), "{setting}");
    }
}

pub(crate) async fn database_of_every_earlier_version_migrates_and_keeps_its_rows(database: Database) {
    let is_shared = database.is_shared();
    let newest = newest(&database).await;
    let expected = schema(&database).await;
    let versions: Vec<i64> = (1..=newest).filter(|version| *version < newest || file(newest).exists()).collect();
    assert!(versions.len() >= 9, "{versions:?}");
    let tokens_of_people = ["02", "03"].map(|last| id::<TokenId>(last).to_string());
    for version in versions {
        let old = fresh(is_shared).await;
        old.sql(&stored_database(version, is_shared))
            .await
            .unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert_eq!(old.number("select max(version) from schema_versions").await, version);
        let before = counts(&old).await;
        assert!(
            before.iter().all(|(_, rows)| *rows > 0),
            "the stored database of version {version} needs a row in every table: {before:?}"
        );
        let store = old.try_open().await.unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert_eq!(store.forged_rows_refused(), 0, "the upgrade from version {version} reports forged rows");
        assert_eq!(old.texts("select id from tokens order by id").await[..2], tokens_of_people, "version {version}");
        assert_eq!(schema(&old).await, expected, "version {version}");
        let after = counts(&old).await;
        for (table, rows) in before {
            let found = after.iter().find(|(name, _)| *name == table).expect("no table is dropped");
            assert_eq!(found.1, rows + changed(version, table), "{table} of version {version}");
        }
        assert_rows_readable(&store).await;
        let mut dumped = Vec::new();
        store.dump(&mut dumped).await.unwrap();
        store.close().await;
        let other = fresh(!is_shared).await;
        let restored = other.open().await;
        restored.restore(&mut &dumped[..]).await.unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert_rows_readable(&restored).await;
        restored.close().await;
    }
}

pub(crate) async fn workloads_of_earlier_versions_have_endpoints(database: Database) {
    let is_shared = database.is_shared();
    let old = fresh(is_shared).await;
    old.sql(&stored_database(12, is_shared)).await.unwrap();
    let without_address = "insert into workloads (id, project_id, name, app, lifecycle, health, revision, doc)
        select replace(id, 'ac120008', 'ac12000e'), project_id, 'idle', app, lifecycle, health, revision,
            replace(replace(replace(doc, 'ac120008\"', 'ac12000e\"'), '\"train\"', '\"idle\"'),
                '\"endpoint\":\"https://10.0.0.7:6443\"', '\"endpoint\":null')
        from workloads";
    old.sql(without_address).await.unwrap();
    let store = old.open().await;
    let mut reader = store.read().await.unwrap();
    let (train, idle) = (reader.workload(id("08")).await.unwrap(), reader.workload(id("0e")).await.unwrap());
    let member = reader.members_of(train.id).await.unwrap()[0].id;
    let of_api = Endpoint {
        purpose: Endpoint::API.to_owned(),
        address: "https://10.0.0.7:6443".to_owned(),
        member: Some(member),
    };
    assert_eq!((train.endpoints, idle.endpoints), (vec![of_api], vec![]));
}

pub(crate) async fn machines_that_tenants_left_before_an_upgrade_are_remembered(database: Database) {
    let is_shared = database.is_shared();
    let old = fresh(is_shared).await;
    old.sql(&stored_database(12, is_shared)).await.unwrap();
    let store = old.open().await;
    let mut reader = store.read().await.unwrap();
    let left = reader.nodes_that_were_left("4c4c4544003510568054b7c04f4a3432").await.unwrap();
    assert_eq!(left.iter().map(|node| node.id).collect::<Vec<_>>(), [id::<NodeId>("14")]);
    assert_eq!(reader.nodes_that_were_left("another").await.unwrap(), []);
}

pub(crate) async fn audit_records_of_earlier_versions_get_their_workload(database: Database) {
    let is_shared = database.is_shared();
    let old = fresh(is_shared).await;
    old.sql(&stored_database(11, is_shared)).await.unwrap();
    let [project, workload, operation, task] =
        ["01", "08", "0a", "0c"].map(|last| format!("0198c0de-7a3b-7c11-9b54-0242ac1200{last}"));
    let records = [
        (2, 1_790_000_000_000_i64, "node/gpu-1", project.as_str(), format!(r#"{{"task":"{task}"}}"#)),
        (3, 1_790_000_000_000, "node/gpu-1", &project, format!(r#"{{"operation":"{operation}"}}"#)),
        (4, 1_790_000_000_000, "workload/train", &project, "{}".to_owned()),
        (5, 1_000, "workload/train", &project, "{}".to_owned()),
        (6, 1_790_000_000_000, "workload/train", "", "{}".to_owned()),
    ];
    for (sequence, at, target, project, metadata) in records {
        let sql = format!(
            "insert into audit (sequence, at, actor, actor_type, action, target, project_id, result, correlation, metadata) \
             values ({sequence}, {at}, 'ann', 'principal', 'node.register', '{target}', '{project}', 'accepted', '', '{metadata}')"
        );
        old.sql(&sql).await.unwrap();
    }
    old.sql("update streams set last_sequence = 6 where stream = 'audit'").await.unwrap();
    let store = old.open().await;
    let filter = AuditFilter { workload: workload.parse().ok(), ..AuditFilter::default() };
    let found = store.read().await.unwrap().audits(&filter).await.unwrap();
    let found: Vec<u64> = found.iter().map(|record| record.sequence).collect();
    assert_eq!(found, [2, 3, 4], "records of its task, of its operation, and of its name since it exists");
    drop(store);
    assert!(old.sql("update audit set actor = 'eve'").await.is_err(), "the audit is append-only again");
}

/// Rows of a member on a node that was lost, and of a decommission that waits for it, as the version before drift wrote them. That needed no
/// change of the schema, so no migration fills the new fields.
async fn waiting_decommission_before_drift(database: &Database) {
    database.sql(&stored_database(15, database.is_shared())).await.unwrap();
    let member = r#"update members set doc = replace(doc, '"health":"healthy","fault":null', '"health":"degraded","fault":
        {"code":"node_unreachable","class":"manual","summary":"gpu-1 is silent","next":{"text":"look at it"}}')
        where id like '%ac120009'"#;
    let operation = r#"insert into operations (id, workload_id, project_id, state, is_open, doc, ended_at, archive_id)
        select replace(id, 'ac12000a', 'ac12001a'), workload_id, project_id, 'running', 1,
            replace(replace(replace(replace(doc, 'ac12000a"', 'ac12001a"'), '"deploy"', '"decommission"'),
                '"succeeded"', '"running"'), '"ended_at":1790000060000', '"ended_at":null'), 0, ''
        from operations"#;
    let step = r#"insert into steps (id, operation_id, position, state, attempts, doc)
        select replace(id, 'ac12000b', 'ac12001b'), replace(operation_id, 'ac12000a', 'ac12001a'), position, 'running', attempts,
            replace(replace(replace(replace(doc, 'ac12000b"', 'ac12001b"'), 'ac12000a"', 'ac12001a"'),
                '"succeeded"', '"running"'), '"ended_at":1790000000000', '"ended_at":null')
        from steps"#;
    for statement in [member, operation, step] {
        database.sql(statement).await.unwrap();
    }
}

pub(crate) async fn rows_before_drift_and_give_ups_are_read_and_take_the_new_fields(database: Database) {
    let old = fresh(database.is_shared()).await;
    waiting_decommission_before_drift(&old).await;
    let store = old.open().await;
    let mut tx = store.begin().await.unwrap();
    let mut workload = tx.workload(id("08")).await.unwrap();
    assert_eq!((&workload.drift, &workload.quiet, &workload.reported), (&Drift::default(), &None, &None));
    assert!(workload.matches_revision(9) && !workload.matches_revision(8), "no revision is known to be quiet");
    let mut operation = tx.newest_operation(workload.id).await.unwrap().expect("it has one");
    assert_eq!((operation.id, operation.kind), (id::<OperationId>("1a"), OperationKind::Decommission));
    assert_eq!((&operation.by_platform, operation.is_ending()), (&None, false));
    assert!(!tx.request_yield(operation.id).await.unwrap(), "a person requested it");
    let steps = tx.steps_of(operation.id).await.unwrap();
    let [step] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((step.spec.spares_member, &step.spec.after, step.interruptions), (false, &Vec::new(), 0));
    let mut member = tx.members_of(workload.id).await.unwrap().remove(0);
    assert!(member.judgments.is_empty() && member.reported.is_none());
    assert_eq!(member.judgment_of(Source::Node).health, Health::Degraded);
    // The node is back: what its loss left in the row ends with it.
    member.set_judgment(Source::Node, Judgment { health: Health::Healthy, fault: None });
    assert_eq!((member.health, &member.fault), (Health::Healthy, &None));

    workload.drift.attempts.push(Timestamp::from_millis(1_790_000_000_000));
    operation.by_platform = Some(ByPlatform { reason: "gpu-1: config changed".to_owned(), yields: false });
    tx.update_member(&member, MemberStateName::Ready).await.unwrap();
    tx.update_operation(&operation, operation.state).await.unwrap();
    let written = tx.update_workload(&workload).await.unwrap();
    assert!(tx.request_yield(operation.id).await.unwrap());
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.workload(workload.id).await.unwrap(), written);
    assert_eq!(reader.members_of(workload.id).await.unwrap()[0].judgments, member.judgments);
    assert!(reader.operation(operation.id).await.unwrap().is_ending());
}
