use std::time::Duration;

use gpuaas_test_support::{DatabaseFile, ManualClock};

use super::*;
use crate::{Store, StoreOptions, store::PROBE};

/// Opens a store whose file may not grow, which makes SQLite fail as it does on a full disk.
async fn open_full_store(database: &DatabaseFile) -> Store {
    let store = Store::open(&StoreOptions { url: database.url() }, Arc::new(ManualClock::default())).await.unwrap();
    limit(&store, 1).await;
    store
}

/// Limits the file to this many pages, or to its current size if that is larger.
async fn limit(store: &Store, pages: u32) {
    let mut tx = store.begin().await.unwrap();
    tx.connection().unwrap().run(format!("pragma max_page_count = {pages}")).await.unwrap();
}

async fn put(store: &Store, name: &'static str) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    tx.put_setting_if_absent(name, &[7; 64 * 1_024]).await?;
    tx.commit().await
}

#[tokio::test]
async fn full_database_stays_readable_and_accepts_changes_once_it_has_space() {
    let database = DatabaseFile::new();
    let store = open_full_store(&database).await;
    assert!(store.accepts_changes().await.unwrap(), "no change has met the limit yet");
    for _ in 0..3 {
        let refused = put(&store, "large").await;
        assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
        assert_eq!(store.read().await.unwrap().setting("large").await.unwrap(), None);
        // The connection that met the limit was dropped, and the next one has no limit.
        limit(&store, 1).await;
        assert!(!store.accepts_changes().await.unwrap());
        limit(&store, 1).await;
    }
    limit(&store, 1_000_000).await;
    assert!(store.accepts_changes().await.unwrap());
    assert_eq!(store.read().await.unwrap().setting(PROBE).await.unwrap(), None);
    tokio::time::timeout(Duration::from_secs(5), put(&store, "large")).await.unwrap().unwrap();
    assert!(store.read().await.unwrap().setting("large").await.unwrap().is_some());
}
