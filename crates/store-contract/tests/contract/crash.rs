//! A crash at any point leaves all of a change or none of it.

use std::{task::Poll, time::Duration};

use gpuaas_model::StreamName;
use gpuaas_store::{Page, StoreError};

use super::{database::Database, given};

pub(crate) async fn a_change_dropped_before_its_commit_leaves_nothing(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&given::project("ada")).await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    tx.append_audit(&given::audit("project/ada")).await.unwrap();
    drop(tx);
    let again = database.open().await;
    assert_eq!(again.read().await.unwrap().projects(None, &Page::default()).await.unwrap(), []);
    for table in ["projects", "events", "audit", "streams"] {
        assert_eq!(database.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
}

pub(crate) async fn change_cancelled_during_a_statement_leaves_nothing_and_blocks_no_other(database: Database) {
    let store = database.open().await;
    for polls in 0..6 {
        let mut tx = store.begin().await.unwrap();
        let project = given::project("ada");
        {
            let mut statement = std::pin::pin!(tx.insert_project(&project));
            for _ in 0..polls {
                if let Poll::Ready(ended) = futures::poll!(&mut statement) {
                    ended.unwrap();
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drop(tx);
    }
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&given::project("ada")).await.expect("the cancelled change left no row");
    tx.commit().await.unwrap();
}

pub(crate) async fn a_change_with_a_failed_statement_does_not_commit(database: Database) {
    let store = database.open().await;
    let (project, node) = (given::project("ada"), given::node("gpu-1"));
    let mut changes = store.changes();
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    tx.append_event(&given::event(StreamName::Platform)).await.unwrap();
    let failed = tx.insert_enrollment(&given::enrollment(&node)).await;
    assert!(matches!(failed, Err(StoreError::Database(_))), "the enrollment's node does not exist: {failed:?}");
    tx.commit().await.expect_err("a change with a failed statement cannot be committed");
    assert_eq!(store.read().await.unwrap().projects(None, &Page::default()).await.unwrap(), []);
    assert!(changes.try_recv().is_err());
}

pub(crate) async fn reader_sees_one_snapshot(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let mut before = store.read().await.unwrap();
    assert_eq!(before.node(node.id).await.unwrap(), node);
    let mut tx = store.begin().await.unwrap();
    let next = tx.update_node(&node).await.unwrap();
    tx.insert_node(&given::node("gpu-2")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(before.node(node.id).await.unwrap(), node, "the reader still sees its snapshot");
    assert_eq!(before.nodes(&Default::default()).await.unwrap().len(), 1);
    let mut after = store.read().await.unwrap();
    assert_eq!(after.node(node.id).await.unwrap(), next);
}

pub(crate) async fn single_statement_reader_sees_the_latest_commit_and_reads_once(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let mut reader = store.read_once().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let next = tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(reader.node(node.id).await.unwrap(), next);
    let refused = reader.node(node.id).await.expect_err("a second statement would see another snapshot");
    assert!(refused.to_string().contains("one statement"), "{refused}");
}
