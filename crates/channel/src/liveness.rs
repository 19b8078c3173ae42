//! Whether each node can be reached, told on changes only: connected at once, stale when its connection ends, unreachable when it does
//! not come back in time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{Connectivity, NodeId};
use tokio_util::sync::CancellationToken;

use crate::backend::ChannelBackend;

pub(crate) struct Liveness {
    backend: Arc<dyn ChannelBackend>,
    unreachable_after: Duration,
    /// Of nodes whose connection ended: ends the wait for their return.
    gone: Arc<Mutex<HashMap<NodeId, CancellationToken>>>,
}

impl Liveness {
    pub(crate) fn new(backend: Arc<dyn ChannelBackend>, unreachable_after: Duration) -> Self {
        Self { backend, unreachable_after, gone: Arc::default() }
    }

    /// The node's connection stands.
    pub(crate) async fn connected(&self, node: NodeId) {
        if let Some(wait) = self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&node) {
            wait.cancel();
        }
        self.backend.connectivity_changed(node, Connectivity::Connected).await;
    }

    /// The node's connection ended; it has some time to come back.
    pub(crate) async fn ended(&self, node: NodeId) {
        self.backend.connectivity_changed(node, Connectivity::Stale).await;
        self.await_return(node);
    }

    /// Starts the wait for a node that is not connected: after its connection ended, or after a restart of this process.
    pub(crate) fn await_return(&self, node: NodeId) {
        let wait = CancellationToken::new();
        let before = self.gone.lock().unwrap_or_else(PoisonError::into_inner).insert(node, wait.clone());
        if let Some(before) = before {
            before.cancel();
        }
        let (backend, after, gone) = (self.backend.clone(), self.unreachable_after, self.gone.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = wait.cancelled() => {}
                () = tokio::time::sleep(after) => {
                    let still = gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&node).is_some();
                    if still {
                        backend.connectivity_changed(node, Connectivity::Unreachable).await;
                    }
                }
            }
        });
    }
}
