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
mod tests;
