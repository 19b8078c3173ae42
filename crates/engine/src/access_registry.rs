//! Which access to nodes is open, and what it may carry at this moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use gpuaas_model::NodeId;
use tokio::sync::watch;

use crate::ownership::NodeAccess;

/// The data that open access may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessState {
    /// All data.
    Granted,
    /// Nothing until the next decision.
    Undecided,
    /// Nothing, permanently.
    Lost,
}

/// All open access to nodes.
#[derive(Default)]
pub(crate) struct OpenAccess(Mutex<Registrations>);

#[derive(Default)]
struct Registrations {
    next: u64,
    by_node: BTreeMap<NodeId, BTreeMap<u64, Entry>>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) access: NodeAccess,
    /// Raised by every change. Decisions about an older value are discarded, except [`AccessState::Lost`].
    pub(crate) change: u64,
    state: watch::Sender<AccessState>,
}

/// A registration of open access to a node. Dropping it removes the registration.
pub struct AccessGuard {
    registry: Arc<OpenAccess>,
    node: NodeId,
    number: u64,
    pub(crate) state: watch::Receiver<AccessState>,
}

impl AccessGuard {
    /// Passes the stream on while access holds. Each item waits while access is undecided; the stream ends when access is lost.
    pub fn guard<S: Stream + Send + Unpin>(self, stream: S) -> impl Stream<Item = S::Item> + Send
    where
        S::Item: Send,
    {
        stream::unfold((stream, self), |(mut stream, mut held)| async move {
            let next = tokio::select! {
                biased;
                () = held.lost() => None,
                next = stream.next() => next,
            };
            let item = next?;
            held.is_granted().await.then_some((item, (stream, held)))
        })
    }

    /// Waits for a decision; `true` if access holds.
    async fn is_granted(&mut self) -> bool {
        let decided = self.state.wait_for(|state| *state != AccessState::Undecided).await;
        decided.is_ok_and(|state| *state == AccessState::Granted)
    }

    async fn lost(&mut self) {
        // A dropped sender also counts as lost.
        let _ = self.state.wait_for(|state| *state == AccessState::Lost).await;
    }
}

impl Drop for AccessGuard {
    fn drop(&mut self) {
        self.registry.remove(self.node, self.number);
    }
}

impl OpenAccess {
    /// Registers access, which counts as granted.
    pub(crate) fn add(self: &Arc<Self>, access: NodeAccess) -> AccessGuard {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, (state, receiver)) = (open.next, watch::channel(AccessState::Granted));
        open.next += 1;
        let node = access.node().node;
        open.by_node.entry(node).or_default().insert(number, Entry { access, change: 0, state });
        AccessGuard { registry: self.clone(), node, number, state: receiver }
    }

    fn remove(&self, node: NodeId, number: u64) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_node) = open.by_node.get_mut(&node) {
            of_node.remove(&number);
            if of_node.is_empty() {
                open.by_node.remove(&node);
            }
        }
    }

    /// Stops all data to and from the node until the next decision; returns the entries to decide.
    pub(crate) fn suspend(&self, node: NodeId) -> Vec<(u64, Entry)> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_node) = open.by_node.get_mut(&node) else { return Vec::new() };
        for entry in of_node.values_mut() {
            entry.change += 1;
            entry.state.send_if_modified(|state| {
                let held = *state == AccessState::Granted;
                if held {
                    *state = AccessState::Undecided;
                }
                held
            });
        }
        of_node.iter().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    /// Stores a decision. Ignored if another change came since the decision began, unless it is [`AccessState::Lost`].
    pub(crate) fn record_decision(&self, node: NodeId, number: u64, change: u64, state: AccessState) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = open.by_node.get(&node).and_then(|of_node| of_node.get(&number));
        if let Some(entry) = entry.filter(|entry| entry.change == change || state == AccessState::Lost) {
            entry.state.send_replace(state);
        }
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_node.keys().copied().collect()
    }
}
