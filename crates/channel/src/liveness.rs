//! How long nodes that lost their connection have to come back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
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
    pub(crate) fn connected(&self, node: NodeId) {
        if let Some(wait) = self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&node) {
            wait.cancel();
        }
    }

    /// Starts the wait for a node that is not connected: after its connection ended, or after the end of the process that held it.
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
                        backend.did_not_return(node).await;
                    }
                }
            }
        });
    }
}
