use std::{io::Seek, io::Write, path::Path, time::Instant};

use gpuaas_test_support::ManualClock;

use super::*;
use crate::{Store, StoreOptions};

const PAGE: u64 = 4_096;

async fn open(file: &Path) -> Result<Store, StoreError> {
    let url = format!("sqlite://{}", file.display());
    Store::open(&StoreOptions { url }, Arc::new(ManualClock::default())).await
}

async fn put(store: &Store, name: &str) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.put_setting_if_absent(name, &[7; 2_000]).await?;
    tx.commit().await
}

/// Overwrites the pages of a database from this page on.
fn damage(file: &Path, from: u64) {
    let mut database = std::fs::File::options().write(true).open(file).unwrap();
    let length = database.metadata().unwrap().len();
    database.seek(std::io::SeekFrom::Start(from * PAGE)).unwrap();
    database.write_all(&vec![0xa5; usize::try_from(length - from * PAGE).unwrap()]).unwrap();
}

/// Creates a database with many pages, all of them in its file.
async fn filled(file: &Path) {
    let store = open(file).await.unwrap();
    for number in 0..200 {
        put(&store, &format!("setting-{number}")).await.unwrap();
    }
    store.close().await;
}

fn assert_damaged(failed: Result<impl Sized, StoreError>, file: &Path, when: &str) {
    match failed.err() {
        Some(StoreError::Damaged { place, .. }) => assert_eq!(place, file.display().to_string(), "{when}"),
        other => panic!("{when}: {other:?}"),
    }
}

#[tokio::test]
async fn damage_is_reported_with_its_file_by_reads_changes_and_starts() {
    for (from, when) in [(1, "after its first page"), (0, "from its first byte")] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        filled(&file).await;
        let store = open(&file).await.unwrap();
        assert_eq!(store.damage(), None);
        damage(&file, from);
        let began = Instant::now();
        let read = async { store.read().await?.setting("setting-7").await };
        assert_damaged(read.await, &file, &format!("a reader, {when}"));
        // The first failures replace the old connection, which caches intact pages.
        for _ in 0..3 {
            let _ = put(&store, "another").await;
        }
        assert_damaged(put(&store, "another").await, &file, &format!("a change, {when}"));
        assert!(store.damage().is_some_and(|damage| damage.contains("store.db")), "{:?}", store.damage());
        assert_damaged(open(&file).await, &file, &format!("a start, {when}"));
        let options = StoreOptions { url: format!("sqlite://{}", file.display()) };
        assert_damaged(options.quick_check().await, &file, &format!("the check before a start, {when}"));
        assert!(began.elapsed().as_secs() < 5, "{when}: it took {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn commit_reports_damage_that_a_statement_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    filled(&file).await;
    let store = open(&file).await.unwrap();
    store.close().await;
    let store = open(&file).await.unwrap();
    damage(&file, 1);
    let mut tx = store.begin().await.unwrap();
    let mut met = false;
    for number in 0..200 {
        met |= tx.setting(&format!("setting-{number}")).await.is_err();
    }
    assert!(met);
    assert_damaged(tx.commit().await, &file, "a commit");
}

#[tokio::test]
async fn quick_check_accepts_an_intact_database_and_creates_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a folder with ? and %41.db");
    let options = StoreOptions { url: format!("sqlite://{}", folder.path().join("none.db").display()) };
    options.quick_check().await.unwrap();
    filled(&folder.path().join("store.db")).await;
    std::fs::rename(folder.path().join("store.db"), &file).unwrap();
    let mut connection = crate::database::Connection::open_file_to_read(&file).unwrap();
    assert_eq!(crate::inspect::findings(&mut connection, "quick_check", 3).await.unwrap(), Vec::<String>::new());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(names, [file]);
}
