//! Detects a full disk: the database refuses changes, while reading still works.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::StoreError;

/// Whether a change was refused because the disk is full. Only the probe clears it, because a smaller change may
/// succeed on an almost full disk.
#[derive(Clone, Default)]
pub(crate) struct DiskFull(Arc<AtomicBool>);

impl DiskFull {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Records a failed change if the disk is full.
    pub(crate) fn record(&self, error: &StoreError) {
        if matches!(error, StoreError::Full(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
