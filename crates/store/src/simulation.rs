//! What a simulation needs of the store: its own time in leases too, answers that take none, and to know when nothing is under way.
//!
//! The database answers from a thread of its own, at moments that no seed decides. A simulation that waits for each answer before anything
//! else happens is repeatable all the same. Without the feature `simulation` all of this is nothing.

#[cfg(feature = "simulation")]
use std::{sync::Arc, task::Poll};

#[cfg(feature = "simulation")]
use gpuaas_model::Clock;

use crate::store::{Simulated, Store};
#[cfg(feature = "simulation")]
use crate::{error::StoreError, store::StoreOptions};

/// When a simulation's store answers.
#[cfg(feature = "simulation")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Before anything else happens.
    AtOnce,
    /// When the database has them, as in earnest: other parts of whoever asks go on meanwhile.
    InTheirTime,
}

/// What somebody waits for before a change or a reader begins.
#[cfg(feature = "simulation")]
pub type Gate = Arc<dyn Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

impl Simulated {
    /// What the database answers.
    pub(crate) async fn answer<T>(self, asked: impl Future<Output = T>) -> T {
        #[cfg(feature = "simulation")]
        if self.at_once {
            return futures::executor::block_on(asked);
        }
        asked.await
    }
}

#[cfg(not(feature = "simulation"))]
impl Store {
    /// Nothing to be waited for.
    pub(crate) async fn rest(&self) {}
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
        store.simulated = Simulated { shared: true, at_once: answers == Answers::AtOnce };
        Ok(store)
    }

    /// Whether no change, no reader and no statement is open or on its way back.
    pub fn is_at_rest(&self) -> bool {
        [&self.writer, &self.readers].iter().all(|pool| pool.num_idle() == pool.size() as usize)
    }

    /// The same store for somebody who waits for `gate` before every change and every reader, as for a database that is hard to reach.
    #[must_use]
    pub fn behind(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Waits, where answers come at once, until connections that were let go of are back: only then does a change begin without a wait.
    pub(crate) async fn rest(&self) {
        if let Some(gate) = &self.gate {
            gate().await;
        }
        if self.simulated.at_once {
            std::future::poll_fn(|context| {
                if self.is_at_rest() {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }
}
