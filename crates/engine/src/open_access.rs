//! Ends open streams to nodes (watches, journals, tunnels) as soon as their project no longer holds the node.
//!
//! Guarantees: access is checked right after its registration, on every change of its node, allocation or members, and every
//! [`SWEEP_EVERY`]. Between such a change and the result of the check nothing passes; access that no longer holds ends. It also ends if the
//! rows cannot be read for [`UNDECIDED_MAX`].

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use gpuaas_model::NodeId;
use gpuaas_store::Change;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{broadcast::error::RecvError, watch},
};

use crate::{
    driver::STORE_RETRY,
    effects::Tunnel,
    engine::Engine,
    ownership::{AccessError, NodeAccess, revalidate},
};

/// How long open access may stay undecided, because rows cannot be read, before it ends.
const UNDECIDED_MAX: Duration = Duration::from_secs(10);
/// Interval of the checks that cover lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The data that open access may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessState {
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
struct Entry {
    access: NodeAccess,
    /// Raised by every change. Decisions about an older value are discarded, except [`AccessState::Lost`].
    change: u64,
    state: watch::Sender<AccessState>,
}

/// A registration of open access to a node. Dropping it removes the registration.
pub struct AccessGuard {
    engine: Arc<Engine>,
    node: NodeId,
    number: u64,
    state: watch::Receiver<AccessState>,
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
        self.engine.open_access().remove(self.node, self.number);
    }
}

impl OpenAccess {
    fn add(&self, access: NodeAccess) -> (u64, watch::Receiver<AccessState>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, (state, receiver)) = (open.next, watch::channel(AccessState::Granted));
        open.next += 1;
        let entry = Entry { access, change: 0, state };
        open.by_node.entry(entry.access.node().node).or_default().insert(number, entry);
        (number, receiver)
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
    fn suspend(&self, node: NodeId) -> Vec<(u64, Entry)> {
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
    fn record_decision(&self, node: NodeId, number: u64, change: u64, state: AccessState) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = open.by_node.get(&node).and_then(|of_node| of_node.get(&number));
        if let Some(entry) = entry.filter(|entry| entry.change == change || state == AccessState::Lost) {
            entry.state.send_replace(state);
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_node.keys().copied().collect()
    }
}

impl Engine {
    /// Registers access that is about to open, then checks it again: access lost in between is refused here.
    pub async fn guard_access(self: &Arc<Self>, access: &NodeAccess) -> Result<AccessGuard, AccessError> {
        let (number, state) = self.open_access().add(access.clone());
        let held = AccessGuard { engine: self.clone(), node: access.node().node, number, state };
        revalidate(&mut self.store().read().await?, access).await?;
        Ok(held)
    }

    /// Checks all open access to nodes that change, until the engine stops.
    pub async fn watch_access(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        let next_sweep = || self.ports().runtime.sleep_until(self.ports().clock.now().plus(SWEEP_EVERY));
        let mut sweep = next_sweep();
        loop {
            let changed = tokio::select! {
                biased;
                () = self.stopping().cancelled() => return,
                change = changes.recv() => match change {
                    Ok(Change::Node(node)) => vec![node],
                    Ok(Change::Event { .. } | Change::Operation(_) | Change::Token(_) | Change::Keys | Change::Sealing) => continue,
                    Ok(Change::Missed) | Err(RecvError::Lagged(_)) => self.open_access().nodes(),
                    Err(RecvError::Closed) => return,
                },
                () = &mut sweep => {
                    sweep = next_sweep();
                    self.open_access().nodes()
                }
            };
            for node in changed {
                let open = self.open_access().suspend(node);
                if !open.is_empty() {
                    let engine = self.clone();
                    let deciding = Box::pin(async move { engine.decide_again(node, open).await });
                    self.ports().runtime.spawn("access decision", deciding);
                }
            }
        }
    }

    async fn decide_again(&self, node: NodeId, open: Vec<(u64, Entry)>) {
        let given_up_at = self.ports().clock.now().plus(UNDECIDED_MAX);
        for (number, entry) in open {
            let given_up = self.ports().runtime.sleep_until(given_up_at);
            let state = tokio::select! {
                biased;
                state = self.decide_access(&entry.access) => state,
                () = given_up => AccessState::Lost,
            };
            if state == AccessState::Lost {
                tracing::info!(node = %entry.access.name(), "access to a node ends: its project no longer holds it");
            }
            self.open_access().record_decision(node, number, entry.change, state);
        }
    }

    /// Decides access by the rows; retries until they can be read.
    async fn decide_access(&self, access: &NodeAccess) -> AccessState {
        loop {
            let decided = async { revalidate(&mut self.store().read().await?, access).await };
            match decided.await {
                Ok(_) => return AccessState::Granted,
                Err(AccessError::NotHeld(_)) => return AccessState::Lost,
                Err(AccessError::Store(error)) => tracing::warn!(%error, "open access could not be decided yet"),
            }
            self.ports().runtime.sleep_until(self.ports().clock.now().plus(STORE_RETRY)).await;
        }
    }
}

/// A tunnel that carries nothing while access is undecided, and fails with `ConnectionAborted` once access is lost.
pub(crate) struct GuardedTunnel {
    inner: Box<dyn Tunnel>,
    present: AccessState,
    next: BoxFuture<'static, watch::Receiver<AccessState>>,
    _guard: AccessGuard,
}

impl GuardedTunnel {
    pub(crate) fn new(inner: Box<dyn Tunnel>, held: AccessGuard) -> Self {
        let mut state = held.state.clone();
        let present = *state.borrow_and_update();
        Self { inner, present, next: next_state(state), _guard: held }
    }

    /// Ready while the tunnel may carry bytes; wakes the task when access changes.
    fn poll_granted(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.present != AccessState::Lost
            && let Poll::Ready(mut state) = self.next.poll_unpin(context)
        {
            self.present = *state.borrow_and_update();
            self.next = next_state(state);
        }
        match self.present {
            AccessState::Granted => Poll::Ready(Ok(())),
            AccessState::Undecided => Poll::Pending,
            AccessState::Lost => Poll::Ready(Err(std::io::Error::new(
                std::io::ErrorKind::ConnectionAborted,
                "the project no longer holds the node",
            ))),
        }
    }
}

fn next_state(mut state: watch::Receiver<AccessState>) -> BoxFuture<'static, watch::Receiver<AccessState>> {
    async move {
        // The sender lives as long as the entry, which lives as long as the tunnel.
        let _ = state.changed().await;
        state
    }
    .boxed()
}

impl AsyncRead for GuardedTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl AsyncWrite for GuardedTunnel {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
