//! A store that lost acknowledged changes refuses changes until an operator decides.

use std::path::Path;

use gpuaas_model::ReplicaId;
use gpuaas_store::{Comparison, FoundMark, HistoryPoint, Mark, MarkFile, Page, Store, StoreError};

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

const FIRST: u64 = 1_700_000_000_000;

/// Makes a store write marks to a file, as a control plane with the id `cp-1` does.
async fn enable_marks(store: &Store, file: &Path) {
    let mut tx = store.begin().await.unwrap();
    tx.put_setting_if_absent("control-plane.id", b"cp-1").await.unwrap();
    let generation = tx.begin_marks(FIRST).await.unwrap();
    tx.commit().await.unwrap();
    store.keep_mark(MarkFile::create(file, Mark::fresh("cp-1".to_owned(), generation, 0, NOW)).unwrap());
}

/// Reads the mark from the file, as a process that starts now does.
fn mark_in(file: &Path) -> Mark {
    match MarkFile::open(file).unwrap() {
        FoundMark::Valid(file) => file.mark().clone(),
        found => panic!("no mark: {found:?}"),
    }
}

async fn point(store: &Store, mark: &Mark) -> HistoryPoint {
    store.read().await.unwrap().history(Some(mark.id)).await.unwrap()
}

async fn insert(store: &Store, name: &str) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.insert_project(&given::project(name)).await?;
    tx.append_audit(&given::audit(name)).await?;
    tx.commit().await
}

/// The number of projects.
async fn projects(store: &Store) -> usize {
    store.read().await.unwrap().projects(None, &Page::default()).await.unwrap().len()
}

/// Takes the database back by `by` marks, as a lost log or a failover of the server does.
async fn go_back(database: &Database, mark: &Mark, by: u64) {
    let sql = format!("update streams set last_sequence = last_sequence - {by} where stream = 'history/{}'", mark.id);
    database.sql(&sql).await.unwrap();
}

pub(crate) async fn mark_is_raised_before_a_commit_is_acknowledged(database: Database) {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (database.open().await, folder.path().join("history.mark"));
    insert(&store, "unmarked").await.unwrap();
    enable_marks(&store, &file).await;
    assert_eq!(mark_in(&file).number, 0);
    for number in 1..=3 {
        insert(&store, &format!("p-{number}")).await.unwrap();
        let mark = mark_in(&file);
        assert_eq!((mark.number, mark.audit, mark.at), (number, number + 1, NOW));
        let point = point(&store, &mark).await;
        assert_eq!((point.number, point.audit), (number, (number + 1, Some(NOW))));
        assert_eq!(point.compare(&mark), Comparison::Continues);
    }
    let before = store.counts();
    run_concurrently(20, |index| {
        let store = store.clone();
        async move { insert(&store, &format!("q-{index}")).await.unwrap() }
    })
    .await;
    let commits = store.counts().commits - before.commits;
    assert_eq!(mark_in(&file).number, 3 + commits, "the number counts database commits, not changes");
}

pub(crate) async fn empty_or_failed_change_does_not_raise_the_mark(database: Database) {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (database.open().await, folder.path().join("history.mark"));
    enable_marks(&store, &file).await;
    insert(&store, "ada").await.unwrap();
    store.begin().await.unwrap().commit().await.unwrap();
    drop(store.begin().await.unwrap());
    let mut dropped = store.begin().await.unwrap();
    dropped.insert_project(&given::project("dropped")).await.unwrap();
    drop(dropped);
    assert!(matches!(insert(&store, "ada").await, Err(StoreError::NameTaken { .. })));
    assert_eq!(mark_in(&file).number, 1);
    assert_eq!(point(&store, &mark_in(&file)).await.number, 1);
}

pub(crate) async fn lost_commits_are_detected_and_described(database: Database) {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (database.open().await, folder.path().join("history.mark"));
    enable_marks(&store, &file).await;
    for number in 0..5 {
        insert(&store, &format!("p-{number}")).await.unwrap();
    }
    let mark = mark_in(&file);
    go_back(&database, &mark, 2).await;
    let went_back = point(&store, &mark).await;
    let Comparison::WentBack(why) = went_back.compare(&mark) else { panic!("the lost commits were not detected") };
    println!("    {why}");
    assert!(why.contains("2 commits of this process are missing") && why.contains(&NOW.to_string()), "{why}");

    let compared = |change: fn(&mut HistoryPoint)| {
        let mut point = went_back.clone();
        change(&mut point);
        point.compare(&mark)
    };
    assert_eq!(compared(|point| point.number = 5), Comparison::Continues);
    assert_eq!(compared(|point| point.number = 6), Comparison::Continues, "killed between the commit and the mark");
    assert_eq!(
        compared(|point| point.generation = Some(FIRST + 1)),
        Comparison::Inconclusive,
        "an operator decided since then"
    );
    assert!(matches!(
        compared(|point| point.control_plane = Some("cp-2".to_owned())),
        Comparison::OtherControlPlane(_)
    ));
    for lost in [
        |point: &mut HistoryPoint| (point.generation, point.number) = (Some(FIRST - 1), 9),
        |point: &mut HistoryPoint| (point.generation, point.number) = (None, 0),
        |point: &mut HistoryPoint| (point.control_plane, point.generation, point.number) = (None, None, 0),
    ] {
        assert!(matches!(compared(lost), Comparison::WentBack(_)));
    }
    let unused = Mark::fresh("cp-1".to_owned(), FIRST, 0, NOW);
    assert_eq!(went_back.compare(&unused), Comparison::Inconclusive);
}

pub(crate) async fn history_that_goes_back_stops_changes_in_all_processes(database: Database) {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (database.open().await, database.open().await);
    let file = folder.path().join("one.mark");
    enable_marks(&one, &file).await;
    enable_marks(&other, &folder.path().join("other.mark")).await;
    for number in 0..3 {
        insert(&one, &format!("p-{number}")).await.unwrap();
        insert(&other, &format!("q-{number}")).await.unwrap();
    }
    let mark = mark_in(&file);
    go_back(&database, &mark, 1).await;
    let mut changes = one.changes();
    let refused = insert(&one, "lost").await;
    println!("    {}", refused.as_ref().unwrap_err());
    assert!(matches!(&refused, Err(StoreError::HistoryRolledBack(why)) if why.contains("commit of this process")));
    assert!(changes.try_recv().is_err(), "a hint was sent");
    for store in [&one, &other] {
        let refused = insert(store, "later").await;
        assert!(matches!(refused, Err(StoreError::HistoryRolledBack(_))), "{refused:?}");
        assert!(
            store.begin().await.is_err() && store.check_history().is_err() && store.history_rolled_back().is_some()
        );
        assert_eq!(projects(store).await, 6, "reads still work, and nothing was changed");
    }
    assert_eq!(mark_in(&file), mark);
    let again = point(&database.open().await, &mark).await;
    assert!(again.went_back.is_some_and(|why| why.contains("commit of this process")), "the next start finds it");
}

pub(crate) async fn external_evidence_stops_changes_until_the_next_generation(database: Database) {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (database.open().await, folder.path().join("history.mark"));
    enable_marks(&store, &file).await;
    let holder = ReplicaId::from_uuid(given::uuid());
    store.acquire_lease("node/1", holder, std::time::Duration::from_secs(60)).await.unwrap().unwrap();
    let evidence_at = NOW.plus(std::time::Duration::from_secs(9_000));
    store.stop_changes("a node has a certificate", evidence_at).await.unwrap();
    store.stop_changes("another node has one", evidence_at).await.unwrap();
    assert!(matches!(insert(&store, "later").await, Err(StoreError::HistoryRolledBack(_))));
    drop(store);

    let (accepting, before) = (database.open().await, mark_in(&file));
    assert_eq!(point(&accepting, &before).await.went_back.as_deref(), Some("a node has a certificate"));
    let mut tx = accepting.begin().await.unwrap();
    tx.begin_next_generation().await.unwrap();
    tx.commit().await.unwrap();
    let after = point(&accepting, &before).await;
    assert_eq!((after.went_back.clone(), after.is_restored_or_accepted), (None, true));
    assert!(after.generation.unwrap() > evidence_at.as_millis() as u64, "the evidence is older than the generation");
    assert_eq!(after.compare(&before), Comparison::Inconclusive);
    let lease = accepting.read().await.unwrap().lease("node/1").await.unwrap().unwrap();
    assert!(lease.fence > 1_000_000, "the fence must exceed all earlier fences: {}", lease.fence);
    insert(&accepting, "later").await.expect("changes are accepted again");
}
