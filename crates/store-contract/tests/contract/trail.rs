//! Audit trail and events: numbered without gaps, and the database refuses to change written records.

use gpuaas_model::{Role, ServiceAccountId, StreamName, TokenId};
use gpuaas_store::{ActorToken, AuditFilter, AuditRecord, NewAudit, Store};

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

async fn audit(store: &Store) -> Vec<AuditRecord> {
    store.read().await.unwrap().audits(&AuditFilter::default()).await.unwrap()
}

pub(crate) async fn sequences(store: &Store) -> Vec<u64> {
    audit(store).await.iter().map(|record| record.sequence).collect()
}

pub(crate) async fn many_writers_leave_no_gap_in_the_audit(database: Database) {
    let stores = [database.open().await, database.open().await];
    run_concurrently(8, |writer| {
        let store = stores[writer % 2].clone();
        async move {
            for turn in 0..8 {
                let mut tx = store.begin().await.unwrap();
                if writer % 2 == 0 {
                    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
                }
                tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
                if writer % 2 == 1 {
                    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
                }
                if turn % 2 == 0 {
                    tx.commit().await.unwrap();
                }
            }
        }
    })
    .await;
    assert_eq!(sequences(&stores[0]).await, (1..=32).collect::<Vec<_>>());
    let counted = database.number("select last_sequence from streams where stream = 'audit'").await;
    assert_eq!(counted, 32, "the number comes from a counter, which archiving does not change");
}

async fn assert_append_only(database: &Database, table: &str, column: &str) {
    let mut statements = vec![
        format!("update {table} set {column} = 'changed'"),
        format!("update {table} set sequence = sequence + 100"),
        format!("delete from {table}"),
        format!("delete from {table} where sequence = 1"),
    ];
    if !database.is_shared() {
        statements.push(format!("insert or replace into {table} select * from {table}"));
    }
    for statement in statements {
        let refused = database.sql(&statement).await.expect_err(&statement);
        assert!(refused.contains("append-only"), "{statement}: {refused}");
    }
    assert_eq!(database.number(&format!("select count(*) from {table} where sequence = 1")).await, 1);
}

pub(crate) async fn the_database_refuses_to_change_or_remove_an_event(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    tx.commit().await.unwrap();
    assert_append_only(&database, "events", "data").await;
}

pub(crate) async fn the_database_refuses_to_change_or_remove_an_audit_record(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&given::audit("node/gpu-1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_append_only(&database, "audit", "actor").await;
}

pub(crate) async fn an_audit_record_reads_back_as_it_was_written(database: Database) {
    let store = database.open().await;
    let written = given::audit("node/gpu-1");
    let mut tx = store.begin().await.unwrap();
    tx.append_audit(&written).await.unwrap();
    tx.commit().await.unwrap();
    let expected = AuditRecord {
        workload: None,
        sequence: 1,
        at: NOW,
        actor: written.actor,
        actor_type: written.actor_type,
        by: None,
        action: written.action,
        target: written.target,
        project: written.project,
        result: written.result,
        correlation: written.correlation,
        metadata: written.metadata,
    };
    assert_eq!(audit(&store).await, [expected]);
}

pub(crate) async fn audit_record_stores_the_acting_token_outside_its_metadata(database: Database) {
    let store = database.open().await;
    let of_person =
        ActorToken { token: TokenId::from_uuid(given::uuid()), service_account: None, role: Some(Role::Auditor) };
    let account = Some(ServiceAccountId::from_uuid(given::uuid()));
    let of_program = ActorToken { service_account: account, ..of_person };
    let actors = [Some(of_person), Some(of_program), None];
    let mut tx = store.begin().await.unwrap();
    for by in actors {
        tx.append_audit(&NewAudit { by, ..given::audit("node/gpu-1") }).await.unwrap();
    }
    tx.commit().await.unwrap();
    let records = audit(&store).await;
    assert_eq!(records.iter().map(|record| record.by).collect::<Vec<_>>(), actors);
    let metadata = given::audit("node/gpu-1").metadata;
    assert!(records.iter().all(|record| record.metadata == metadata), "{records:?}");
}
