//! Detects a full disk: the database refuses changes, while reading still works.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    error::StoreError,
    query::{Value, text},
    store::Store,
};

/// Name of a row that is inserted and deleted in one change to test for free space.
const PROBE: &str = "room";
/// Size of an ordinary change.
const PROBE_BYTES: u32 = 32 * 1_024;

/// Whether a change was refused because the disk is full. Only the probe clears it, because a smaller change may
/// succeed on an almost full disk.
#[derive(Clone, Default)]
pub(crate) struct DiskFull(Arc<AtomicBool>);

impl DiskFull {
    /// Records a failed change if the disk is full.
    pub(crate) fn record(&self, error: &StoreError) {
        if matches!(error, StoreError::Full(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Store {
    /// Returns whether the database accepts changes. Costs nothing until a change was refused because the disk is full;
    /// from then on it tries a change that leaves no rows.
    pub async fn accepts_changes(&self) -> Result<bool, StoreError> {
        if !self.disk_full.0.load(Ordering::Relaxed) {
            return Ok(true);
        }
        match self.try_change().await {
            Ok(()) => {
                self.disk_full.0.store(false, Ordering::Relaxed);
                Ok(true)
            }
            Err(StoreError::Full(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn try_change(&self) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        // Bytes that cannot be compressed.
        let bytes = (0..PROBE_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let insert = "insert into settings (name, value) values ($1, $2)";
        tx.execute(insert, vec![text(PROBE), Value::Blob(bytes)]).await?;
        tx.execute("delete from settings where name = $1", vec![text(PROBE)]).await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuaas_model::{Clock, Timestamp};

    use super::*;
    use crate::StoreOptions;

    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_790_000_000_000)
        }
    }

    /// Opens a store whose file may not grow, which makes SQLite fail as it does on a full disk.
    async fn open_full_store(folder: &tempfile::TempDir) -> Store {
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let store = Store::open(&StoreOptions { url }, Arc::new(FixedClock)).await.unwrap();
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
        let folder = tempfile::tempdir().unwrap();
        let store = open_full_store(&folder).await;
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
}
