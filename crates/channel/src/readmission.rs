//! Looks again at nodes that have changed: where one may no longer connect, or only as something else, its connections here end at once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{Code, NodeId};
use tokio::sync::Semaphore;

use crate::{
    backend::{Presented, Refused},
    channel::{Channel, Shared},
    connections::Connection,
};

/// Nodes that are looked at at once.
const AT_ONCE: usize = 32;
/// Wait before rows that could not be read are read again.
const RETRY: Duration = Duration::from_secs(1);

/// The looking that is to be done.
pub(crate) struct Readmissions {
    /// Nodes that somebody is about to look at: whatever changes before it does is seen by it.
    due: Mutex<BTreeSet<NodeId>>,
    places: Semaphore,
}

impl Default for Readmissions {
    fn default() -> Self {
        Self { due: Mutex::default(), places: Semaphore::new(AT_ONCE) }
    }
}

impl Readmissions {
    fn due(&self) -> std::sync::MutexGuard<'_, BTreeSet<NodeId>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    /// Looks again at a node that has changed: where it may no longer connect, each of its connections here ends at once.
    pub fn readmit(&self, node: NodeId) {
        let shared = self.shared.clone();
        if !shared.connections.of(node).is_empty() && shared.readmissions.due().insert(node) {
            tokio::spawn(readmit(shared, node));
        }
    }

    /// Looks again at every node that is connected here: any of them may have changed.
    pub fn readmit_all(&self) {
        for node in self.shared.connections.nodes() {
            self.readmit(node);
        }
    }
}

async fn readmit(shared: Arc<Shared>, node: NodeId) {
    loop {
        let looked = {
            // Never closed.
            let _place = shared.readmissions.places.acquire().await;
            shared.readmissions.due().remove(&node);
            look(&shared, node).await
        };
        match looked {
            Looked::Decided => return,
            // Somebody who is about to look does so for both.
            Looked::Unavailable if !shared.readmissions.due().insert(node) => return,
            Looked::Unavailable => tokio::time::sleep(RETRY).await,
        }
    }
}

enum Looked {
    Decided,
    Unavailable,
}

/// Looks at what the node's connections have shown: once at each certificate, of which there are as good as ever one or two.
async fn look(shared: &Shared, node: NodeId) -> Looked {
    let mut connections = shared.connections.of(node);
    while let Some(first) = connections.first().cloned() {
        let (same, others) = connections.into_iter().partition(|other| is_same(&other.presented, &first.presented));
        connections = others;
        match shared.backend.admit(&first.presented).await {
            Err(refused) if refused.code == Code::Unavailable => return Looked::Unavailable,
            verdict => judge(node, same, &verdict),
        }
    }
    Looked::Decided
}

fn is_same(one: &Presented, other: &Presented) -> bool {
    one.certificate == other.certificate
}

/// Ends those that would not be let in now as what they were let in.
fn judge(node: NodeId, connections: Vec<Arc<Connection>>, verdict: &Result<crate::Admission, Refused>) {
    for connection in connections {
        let reason = match (verdict, connection.admitted.get()) {
            (Ok(now), Some(then)) if now != then => "its certificate has expired",
            // One that is about to be let in is looked at by whoever lets it in.
            (Ok(_), _) => continue,
            (Err(refused), _) => refused.message.as_str(),
        };
        tracing::info!(%node, reason, "a node's connection is ended");
        connection.end.cancel();
    }
}
