//! Unreachable timers of nodes that have lost their connection.

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

    /// Starts the timer of a node whose connection, or the process that held it, has ended; a running timer is reset.
    pub(crate) fn expect_reconnect(&self, node: NodeId) {
        let wait = CancellationToken::new();
        let before = self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(node, wait.clone());
        if let Some(before) = before {
            before.cancel();
        }
        let (backend, after, awaited) = (self.backend.clone(), self.unreachable_after, self.awaited.clone());
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
