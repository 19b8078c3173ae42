//! What a simulation needs of the store: its own time in leases too, commits that take none, and to know when nothing is under way.
//!
//! Commits end on a thread of their own, at moments that no seed decides. A simulation that has them made before anything else happens is repeatable.
//! Without the feature `simulation` all of this is nothing.

#[cfg(feature = "simulation")]
use std::sync::Arc;

#[cfg(feature = "simulation")]
use gpuaas_model::Clock;

#[cfg(feature = "simulation")]
use crate::store::{Simulated, StoreOptions};
use crate::{error::StoreError, store::Store};

/// When a simulation's store answers.
#[cfg(feature = "simulation")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Before anything else happens.
    AtOnce,
    /// When the database has them, as in earnest: other parts of whoever asks go on meanwhile.
    InTheirTime,
}

/// What somebody waits for before a change or a reader begins, and why neither does.
#[cfg(feature = "simulation")]
pub type Gate = Arc<dyn Fn() -> futures::future::BoxFuture<'static, Result<(), StoreError>> + Send + Sync>;

#[cfg(not(feature = "simulation"))]
impl Store {
    /// Nothing to be waited for.
    pub(crate) async fn pass_gate(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(feature = "simulation")]
impl Store {
    /// The store of a simulation: leases go by `clock`, and several engines may share it as replicas do.
    pub async fn open_simulated(
        options: &StoreOptions,
        clock: Arc<dyn Clock>,
        answers: Answers,
    ) -> Result<Self, StoreError> {
        let mut store = Self::open(options, clock).await?;
        store.simulated = Simulated { shared: true };
        if answers == Answers::AtOnce {
            store.writer.commit_at_once();
        }
        Ok(store)
    }

    /// Whether no change and no reader is open, and no commit on its way.
    pub fn is_at_rest(&self) -> bool {
        self.writer.is_at_rest() && self.readers.is_at_rest()
    }

    /// The same store for somebody who waits for `gate` before every change and every reader, as for a database that is hard to reach.
    #[must_use]
    pub fn behind(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Waits for the gate, if there is one.
    pub(crate) async fn pass_gate(&self) -> Result<(), StoreError> {
        match &self.gate {
            Some(gate) => gate().await,
            None => Ok(()),
        }
    }
}
