//! Support for simulations: leases by simulated time, commits that complete at once, and a check that nothing is in
//! progress.
//!
//! Commits normally complete on another thread, at moments that no seed determines. A simulation stays repeatable by
//! making them complete before anything else happens. Without the feature `simulation`, nothing of this exists.

#[cfg(feature = "simulation")]
use std::sync::Arc;

#[cfg(feature = "simulation")]
use gpuaas_model::Clock;

#[cfg(feature = "simulation")]
use crate::{
    error::StoreError,
    options::StoreOptions,
    store::{Gate, Simulated, Store},
};

/// When the store of a simulation completes a commit.
#[cfg(feature = "simulation")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitTiming {
    /// At once, before anything else happens.
    Immediate,
    /// When the database has finished, as in production; other tasks of the caller run meanwhile.
    Asynchronous,
}

#[cfg(feature = "simulation")]
impl Store {
    /// Opens the store of a simulation: leases follow `clock`, and several engines may share the store as replicas do.
    pub async fn open_simulated(
        options: &StoreOptions,
        clock: Arc<dyn Clock>,
        timing: CommitTiming,
    ) -> Result<Self, StoreError> {
        let mut store = Self::open(options, clock).await?;
        store.simulated = Simulated { shared: true };
        if timing == CommitTiming::Immediate {
            store.writer.commit_inline();
        }
        Ok(store)
    }

    /// Returns whether no change, reader or commit is in progress.
    pub fn is_idle(&self) -> bool {
        self.writer.is_idle() && self.readers.is_idle()
    }

    /// Returns the same store with a gate that is awaited before every change and every reader. It simulates a database
    /// that is hard to reach.
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }
}
