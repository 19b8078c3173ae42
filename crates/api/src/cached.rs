//! Caches values that unauthenticated requests can read, so that rows are read at most once a second.

use std::{sync::Arc, time::Duration};

use gpuaas_engine::port::Runtime;
use tokio::sync::Mutex;

/// How long a value stays fresh.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// A value that is cached for [`FRESH_FOR`]. Concurrent callers wait for a single read.
pub(crate) struct Cached<T> {
    runtime: Arc<dyn Runtime>,
    value: Mutex<Option<(Duration, T)>>,
}

impl<T: Clone> Cached<T> {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, value: Mutex::default() }
    }

    /// Returns the value, and reads it again if the cached one is too old.
    pub(crate) async fn get(&self, read: impl Future<Output = T>) -> T {
        let mut value = self.value.lock().await;
        match &*value {
            Some((read_at, answer)) if self.runtime.elapsed().saturating_sub(*read_at) < FRESH_FOR => answer.clone(),
            _ => {
                let answer = read.await;
                *value = Some((self.runtime.elapsed(), answer.clone()));
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::atomic::{AtomicU32, AtomicU64, Ordering},
    };

    use gpuaas_model::Timestamp;

    use super::*;

    #[derive(Default)]
    struct Millis(AtomicU64);

    impl Runtime for Millis {
        fn spawn(&self, _: &'static str, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn concurrent_callers_within_a_second_share_one_read() {
        let (time, readings) = (Arc::new(Millis::default()), AtomicU32::new(0));
        let cached = Cached::new(time.clone());
        let get = || {
            cached.get(async {
                tokio::task::yield_now().await;
                readings.fetch_add(1, Ordering::Relaxed)
            })
        };
        assert_eq!(futures::future::join_all((0..100).map(|_| get())).await, vec![0; 100]);
        time.0.store(999, Ordering::Relaxed);
        assert_eq!(get().await, 0);
        time.0.store(1_000, Ordering::Relaxed);
        assert_eq!(get().await, 1);
    }
}
