//! Requests with an idempotency key that are in progress.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gpuaas_model::TokenId;

/// Requests in progress, by token and key.
#[derive(Default)]
pub(crate) struct InProgress(Mutex<HashMap<(TokenId, String), Weak<KeyLock>>>);

/// Lock that serializes equal requests.
type KeyLock = tokio::sync::Mutex<()>;

impl InProgress {
    /// Returns the lock of a key. It is dropped with its last holder.
    pub(crate) fn lock(&self, token: TokenId, key: &str) -> Arc<KeyLock> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = known.get(&(token, key.to_owned())).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(KeyLock::new(()));
        known.insert((token, key.to_owned()), Arc::downgrade(&lock));
        lock
    }
}
