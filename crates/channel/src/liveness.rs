//! Unreachable timers of nodes that have lost their connection.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
use tokio_util::sync::CancellationToken;

use crate::backend::ChannelBackend;

/// Least time for a node to connect again, however long it was silent before: the longest pause of an agent between two attempts. After a
/// pause of the control plane itself, the connections of all nodes end at once.
const RETURN_MIN: Duration = Duration::from_secs(5);

pub(crate) struct Liveness {
    backend: Arc<dyn ChannelBackend>,
    unreachable_after: Duration,
    /// Cancels the timer of each node that has lost its connection.
    awaited: Arc<Mutex<HashMap<NodeId, CancellationToken>>>,
}

impl Liveness {
    pub(crate) fn new(backend: Arc<dyn ChannelBackend>, unreachable_after: Duration) -> Self {
        Self { backend, unreachable_after, awaited: Arc::default() }
    }

    /// Stops the timer of a node that has connected.
    pub(crate) fn connected(&self, node: NodeId) {
        if let Some(wait) = self.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(&node) {
            wait.cancel();
        }
    }

    /// Starts the timer of a node whose connection, or the process that held it, has ended; a running timer is reset. `silence` is the time
    /// for which the node was not heard before.
    pub(crate) fn expect_reconnect(&self, node: NodeId, silence: Duration) {
        let wait = CancellationToken::new();
        let before = self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(node, wait.clone());
        if let Some(before) = before {
            before.cancel();
        }
        let after = time_to_return(self.unreachable_after, silence);
        let (backend, awaited) = (self.backend.clone(), self.awaited.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = wait.cancelled() => {}
                () = tokio::time::sleep(after) => {
                    let still = awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(&node).is_some();
                    if still {
                        backend.became_unreachable(node).await;
                    }
                }
            }
        });
    }
}

/// Time that a node has for its return, so that it is unreachable when it was not heard for `unreachable_after`.
fn time_to_return(unreachable_after: Duration, silence: Duration) -> Duration {
    unreachable_after.saturating_sub(silence).max(RETURN_MIN.min(unreachable_after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_before_the_end_counts_but_leaves_time_for_an_attempt() {
        let left = |silence| time_to_return(Duration::from_secs(15), Duration::from_secs(silence)).as_secs();
        assert_eq!([left(0), left(4), left(10), left(60)], [15, 11, 5, 5]);
        assert_eq!(time_to_return(Duration::from_secs(1), Duration::from_secs(9)), Duration::from_secs(1));
    }
}
