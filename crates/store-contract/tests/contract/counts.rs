//! The store's counters of its own work.

use super::{database::Database, given};

pub(crate) async fn committed_changes_are_counted_and_dropped_ones_are_not(database: Database) {
    let store = database.open().await;
    let before = store.counts();
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&given::project("kept")).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.counts();
    assert_eq!((kept.changes, kept.commits), (before.changes + 1, before.commits + 1));
    assert!(kept.statements >= before.statements + 2, "one statement looks up the name, another inserts the row");
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&given::project("dropped")).await.unwrap();
    drop(tx);
    let dropped = store.clone().counts();
    assert_eq!((dropped.changes, dropped.commits), (kept.changes, kept.commits));
    assert!(dropped.statements > kept.statements);
    store.read().await.unwrap().project_by_name("kept").await.unwrap();
    assert_eq!(store.counts().statements, dropped.statements + 1, "statements of readers are counted too");
}
