//! Checks changed nodes again: if a node may no longer connect, or its admission differs, its affected connections here end at once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{Code, NodeId};
use tokio::sync::Semaphore;

use crate::{
    backend::{ChannelBackend, PresentedCertificate, Refused},
    connections::{Connection, Connections},
};

/// Nodes that are checked concurrently.
const AT_ONCE: usize = 32;
/// Wait before a check that could not be decided is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Pending checks.
pub(crate) struct Rechecks {
    /// Nodes whose check is scheduled and has not started; it covers every change until it starts.
    pending: Mutex<BTreeSet<NodeId>>,
    permits: Semaphore,
}

impl Default for Rechecks {
    fn default() -> Self {
        Self { pending: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }
}

impl Rechecks {
    /// Schedules a check of a node; returns false if one is already scheduled.
    pub(crate) fn schedule(&self, node: NodeId) -> bool {
        self.pending().insert(node)
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, BTreeSet<NodeId>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the connections of a node whose check is scheduled, until it can be decided.
    pub(crate) async fn check(&self, connections: &Connections, backend: &dyn ChannelBackend, node: NodeId) {
        loop {
            let checked = {
                // The semaphore is never closed, so this cannot fail.
                let _place = self.permits.acquire().await;
                self.pending().remove(&node);
                check_connections(connections, backend, node).await
            };
            match checked {
                CheckResult::Done => return,
                // Another check of this node is already scheduled and covers this one.
                CheckResult::Unavailable if !self.schedule(node) => return,
                CheckResult::Unavailable => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

enum CheckResult {
    Done,
    Unavailable,
}

/// Checks each distinct certificate of the node's connections once; there are almost always one or two.
async fn check_connections(connections: &Connections, backend: &dyn ChannelBackend, node: NodeId) -> CheckResult {
    let mut connections = connections.of(node);
    while let Some(first) = connections.first().cloned() {
        let (same, others) = connections.into_iter().partition(|other| is_same(&other.presented, &first.presented));
        connections = others;
        match backend.admit(&first.presented).await {
            Err(refused) if refused.code == Code::Unavailable => return CheckResult::Unavailable,
            outcome => apply_outcome(node, same, &outcome),
        }
    }
    CheckResult::Done
}

fn is_same(one: &PresentedCertificate, other: &PresentedCertificate) -> bool {
    one.certificate == other.certificate
}

/// Ends the connections whose admission would differ now.
fn apply_outcome(node: NodeId, connections: Vec<Arc<Connection>>, outcome: &Result<crate::Admission, Refused>) {
    for connection in connections {
        let reason = match (outcome, connection.admitted.get()) {
            (Ok(now), Some(then)) if now != then => "its certificate has expired",
            // Unchanged, or not admitted yet: the pending admission decides.
            (Ok(_), _) => continue,
            (Err(refused), _) => refused.message.as_str(),
        };
        tracing::info!(%node, reason, "a node's connection is ended");
        connection.end.cancel();
    }
}
