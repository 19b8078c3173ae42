//! Damaged content: an error about a value that cannot be read names its table, row and column; a verification names every defect; an
//! inspection distinguishes a database without a platform from a damaged one.

use gpuaas_model::{SecretId, StreamName};
use gpuaas_store::{
    Contents, EnrollmentRecord, FindingKind, NodeFilter, NodeRecord, PLATFORM, ProjectRecord, SecretRecord, Store,
    StoreError, VerifiedRows,
};

use super::{
    database::{Database, NOW, Proof},
    given,
};

/// Returns `TABLE/ROW/COLUMN` of the value that could not be read.
fn place(failed: Result<impl std::fmt::Debug, StoreError>) -> String {
    match failed {
        Err(StoreError::Corrupt(bad)) => format!("{}/{}/{}", bad.table(), bad.row(), bad.column()),
        other => panic!("expected an unreadable row: {other:?}"),
    }
}

pub(crate) async fn row_that_cannot_be_read_is_named_by_table_key_and_column(database: Database) {
    let store = database.open().await;
    let (project, node, allocation) = given::allocated_node(&store, "gpu-1").await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_task(&given::task(&node)).await.unwrap();
    tx.commit().await.unwrap();
    database.sql("update nodes set doc = substr(doc, 1, length(doc) / 2)").await.unwrap();
    database.sql("update tasks set doc = replace(doc, 'task_type', 'task_typo')").await.unwrap();
    database.sql("update allocations set doc = '[]'").await.unwrap();
    database.sql("update projects set doc = ''").await.unwrap();
    database
        .sql("insert into leases (name, holder, fence, expires_at) values ('operation/1', 'nobody', -1, 0)")
        .await
        .unwrap();
    let mut reader = store.read().await.unwrap();
    let of = |table: &str, id: &dyn std::fmt::Display| format!("{table}/{id}/doc");
    assert_eq!(place(reader.node(node.id).await), of("nodes", &node.id));
    assert_eq!(place(reader.nodes(&NodeFilter::default()).await), of("nodes", &node.id));
    assert_eq!(place(reader.allocation(allocation.id).await), of("allocations", &allocation.id));
    assert_eq!(place(reader.project(project.id).await), of("projects", &project.id));
    assert!(place(reader.open_tasks(node.id).await).starts_with("tasks/"));
    assert_eq!(place(reader.lease("operation/1").await), "leases/operation/1/holder");
    drop(reader);
    database
        .sql(
            "insert into events (stream, sequence, at, kind, subject_kind, subject_id, correlation, data) \
               values ('platform', 9, 0, 'node.registered', 'node', '-', '', '{')",
        )
        .await
        .unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(place(reader.events(StreamName::Platform, 8, 10).await), "events/platform/9/data");
    drop(reader);
    // A literal of the byte `{`, in the dialect of PostgreSQL or SQLite.
    let bytes = if database.is_shared() { "'\\x7b'" } else { "x'7b'" };
    database.sql(&format!("insert into settings (name, value) values ('sealing.current', {bytes})")).await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(place(reader.sealing().await), "settings/sealing.current/value");
}

pub(crate) async fn allocation_in_use_is_read_although_its_member_cannot_be(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let workload = given::workload(&project, "train");
    let member = given::member(&workload, &allocation);
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&workload).await.unwrap();
    tx.insert_members(&[member.clone()]).await.unwrap();
    tx.commit().await.unwrap();
    for doc in ["'{'", "'[]'", "''"] {
        database.sql(&format!("update members set doc = {doc}")).await.unwrap();
        let mut reader = store.read().await.unwrap();
        let user = reader.allocation_users(&[allocation.id]).await.unwrap().remove(&allocation.id).expect("it is used");
        assert_eq!((user.workload, user.workload_name, user.member), (workload.id, workload.name.clone(), None));
        assert_eq!(place(reader.member(member.id).await), format!("members/{}/doc", member.id));
    }
}

/// Inserts rows into every table that the verification test damages.
async fn insert_rows(store: &Store) -> (ProjectRecord, NodeRecord, EnrollmentRecord, SecretRecord) {
    let (project, node, _) = given::allocated_node(store, "gpu-1").await;
    let enrollment = given::enrollment(&node);
    let id = SecretId::from_uuid(given::uuid());
    let sealed = Proof::sealed("old", id.to_string().as_bytes(), b"a secret");
    let secret =
        SecretRecord { id, workload: None, name: "token".into(), sealed, sha256: given::digest(), created_at: NOW };
    let mut tx = store.begin().await.unwrap();
    tx.insert_task(&given::task(&node)).await.unwrap();
    tx.insert_enrollment(&enrollment).await.unwrap();
    tx.insert_service_account(&given::service_account(project.id, "ci")).await.unwrap();
    tx.put_secret(&secret).await.unwrap();
    tx.put_setting_if_absent(PLATFORM, b"cp-1").await.unwrap();
    tx.put_setting_if_absent("api.key", &Proof::sealed("old", b"api.key", b"a key")).await.unwrap();
    for event in [given::event(StreamName::Platform), given::event(StreamName::Platform)] {
        tx.append_event(&event).await.unwrap();
    }
    tx.commit().await.unwrap();
    (project, node, enrollment, secret)
}

async fn verified(database: &Database) -> VerifiedRows {
    let proof = std::sync::Arc::new(Proof(vec!["old"]));
    database.options().verify(Some(proof), &["api.key"]).await.unwrap()
}

pub(crate) async fn verification_reads_every_row_during_a_change_and_names_defects(database: Database) {
    let store = database.open().await;
    let (project, node, enrollment, secret) = insert_rows(&store).await;
    let open_change = store.begin().await.unwrap();
    let found = verified(&database).await;
    assert_eq!(found.findings, [], "verified during an open change");
    assert!(found.rows > 15 && found.sealed == 2, "{} rows, {} sealed", found.rows, found.sealed);
    drop(open_change);
    // A literal of one zero byte, which no key has sealed.
    let zero = if database.is_shared() { "'\\x00'" } else { "x'00'" };
    for (sql, kind, place) in [
        (
            "update nodes set state = 'lost'".to_owned(),
            FindingKind::Row,
            format!("table nodes, row {}, column state", node.id),
        ),
        (
            "update projects set doc = '{'".to_owned(),
            FindingKind::Row,
            format!("table projects, row {}, column doc", project.id),
        ),
        (
            "update enrollments set code = '00'".to_owned(),
            FindingKind::Forged,
            format!("table enrollments, row {}", enrollment.id),
        ),
        (
            format!("update secrets set sealed = {zero}"),
            FindingKind::Sealed,
            format!("table secrets, row {}, column sealed", secret.id),
        ),
        (
            format!("update settings set value = {zero} where name = 'api.key'"),
            FindingKind::Sealed,
            "table settings, row api.key, column value".to_owned(),
        ),
        (
            "update streams set last_sequence = 1 where stream = 'platform'".to_owned(),
            FindingKind::Sequence,
            "stream platform".to_owned(),
        ),
        (
            format!("insert into settings (name, value) values ('restore.unfinished', {zero})"),
            FindingKind::Interrupted,
            "table settings, row restore.unfinished".to_owned(),
        ),
    ] {
        database.sql(&sql).await.unwrap();
        let found = verified(&database).await.findings;
        assert!(found.iter().any(|of| of.kind == kind && of.place == place), "{sql}: {found:?}");
    }
    let findings = verified(&database).await.findings;
    assert_eq!(findings.len(), 7, "each defect is reported once: {findings:?}");
    assert_eq!(
        store.read().await.unwrap().setting("restore.unfinished").await.unwrap(),
        Some(vec![0]),
        "verification repairs nothing"
    );
}

pub(crate) async fn inspection_detects_a_missing_platform_and_creates_nothing(database: Database) {
    let contents = async || database.options().inspect().await;
    let none = if database.is_shared() { Contents::NoTables } else { Contents::NoFile };
    assert_eq!(contents().await.unwrap(), none);
    assert_eq!(contents().await.unwrap(), none, "the inspection created something");
    let store = database.open().await;
    assert_eq!(contents().await.unwrap(), Contents::NoRows);
    let mut tx = store.begin().await.unwrap();
    tx.put_setting_if_absent(PLATFORM, b"cp-1").await.unwrap();
    tx.commit().await.unwrap();
    // SQLite's rows are only in its write-ahead log at this point.
    assert_eq!(contents().await.unwrap(), Contents::Platform);
    database.sql("delete from settings").await.unwrap();
    given::allocated_node(&store, "gpu-1").await;
    assert_eq!(place(contents().await), format!("settings/{PLATFORM}/value"), "a platform without an id is corrupt");
    store.close().await;
    database.sql("insert into schema_versions (version, checksum) values (4711, 'x')").await.unwrap();
    assert!(matches!(contents().await, Err(StoreError::TooNew { found: 4711, .. })));
}
