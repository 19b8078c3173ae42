//! What one process knows of the rotation of task-signing keys, besides the keys.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use gpuaas_model::Timestamp;
use tokio::sync::Notify;

use crate::key_delivery::KeyDeliveries;

/// Interval of the search for long-lived connections whose key set must be renewed.
const OLD_SETS_EVERY: Duration = Duration::from_secs(3_600);

/// A process's state of the key rotation.
#[derive(Default)]
pub(crate) struct KeyRotationState {
    pub(crate) wake: Notify,
    /// Set when a node lacks keys, or when the last task of a key may have ended.
    pub(crate) is_dirty: AtomicBool,
    /// The version of the set at which nothing was left to do.
    pub(crate) settled: AtomicU64,
    pub(crate) deliveries: KeyDeliveries,
    /// Time of the last search for long-lived connections with expiring sets, in milliseconds.
    old_sets_checked_at: AtomicI64,
    /// Time of the last check of all nodes for an authority's rotation, in milliseconds; 0 if none was in progress.
    nodes_checked_at: AtomicI64,
}

impl KeyRotationState {
    /// Requests another check of the keys.
    pub(crate) fn mark_dirty(&self) {
        self.is_dirty.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Returns whether all nodes may be checked now, and the time until the next check. If `true`, records the check.
    pub(crate) fn try_begin_node_check(&self, now: Timestamp, every: Duration) -> (bool, Duration) {
        let last = Timestamp::from_millis(self.nodes_checked_at.load(Ordering::Relaxed));
        let next = last.plus(every);
        // A clock that was set back delays nothing.
        let is_wanted = next <= now || last > now;
        if is_wanted {
            self.nodes_checked_at.store(now.as_millis(), Ordering::Relaxed);
        }
        (is_wanted, next.since(now))
    }

    /// Records that no rotation was in progress, so that the next one is checked without delay.
    pub(crate) fn reset_node_check(&self) {
        self.nodes_checked_at.store(0, Ordering::Relaxed);
    }

    /// Returns whether a search for long-lived connections is due; if so, records it.
    pub(crate) fn try_begin_old_set_search(&self, now: Timestamp) -> bool {
        let last = Timestamp::from_millis(self.old_sets_checked_at.load(Ordering::Relaxed));
        let is_time = last.plus(OLD_SETS_EVERY) <= now;
        if is_time {
            self.old_sets_checked_at.store(now.as_millis(), Ordering::Relaxed);
        }
        is_time
    }
}
