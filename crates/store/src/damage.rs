//! Records whether the database files were found damaged while the store was open.

use std::sync::{Arc, OnceLock};

use crate::error::StoreError;

/// The first damage that the database reported. It is never cleared, because nothing here repairs it.
#[derive(Clone, Default)]
pub(crate) struct Damage(Arc<OnceLock<String>>);

impl Damage {
    /// Returns the first damage that was recorded.
    pub(crate) fn first(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Records a failed statement, `begin` or commit if it reports damage.
    pub(crate) fn record(&self, error: &StoreError) {
        if matches!(error, StoreError::Damaged { .. }) && self.0.set(error.to_string()).is_ok() {
            tracing::error!(%error, "the database is damaged: stop the control plane, keep a copy of its files, and restore a backup");
        }
    }
}

#[cfg(test)]
mod tests;
