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
    ownership::{AccessError, NodeAccess, still_held},
};

/// How long open access may stay undecided, because rows cannot be read, before it ends.
const UNDECIDED_MAX: Duration = Duration::from_secs(10);
/// Interval of the checks that cover lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The data that open access may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All data.
    Held,
    /// Nothing until the next decision.
    Undecided,
    /// Nothing, permanently.
    Lost,
}

/// All open access to nodes.
#[derive(Default)]
pub(crate) struct Held(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    by_node: BTreeMap<NodeId, BTreeMap<u64, Entry>>,
}

#[derive(Clone)]
struct Entry {
    access: NodeAccess,
    /// Raised by every change. Decisions about an older value are discarded, except [`Verdict::Lost`].
    change: u64,
    verdict: watch::Sender<Verdict>,
}

/// A registration of open access to a node. Dropping it removes the registration.
pub struct WhileHeld {
    engine: Arc<Engine>,
    node: NodeId,
    number: u64,
    verdict: watch::Receiver<Verdict>,
}

impl WhileHeld {
    /// Passes the stream on while access holds. Each item waits while access is undecided; the stream ends when access is lost.
    pub fn carry<S: Stream + Send + Unpin>(self, stream: S) -> impl Stream<Item = S::Item> + Send
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
            held.is_held().await.then_some((item, (stream, held)))
        })
    }

    /// Waits for a decision; `true` if access holds.
    async fn is_held(&mut self) -> bool {
        let decided = self.verdict.wait_for(|verdict| *verdict != Verdict::Undecided).await;
        decided.is_ok_and(|verdict| *verdict == Verdict::Held)
    }

    async fn lost(&mut self) {
        // A dropped sender also counts as lost.
        let _ = self.verdict.wait_for(|verdict| *verdict == Verdict::Lost).await;
    }
}

impl Drop for WhileHeld {
    fn drop(&mut self) {
        self.engine.held().forget(self.node, self.number);
    }
}

impl Held {
    fn add(&self, access: NodeAccess) -> (u64, watch::Receiver<Verdict>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, (verdict, receiver)) = (open.next, watch::channel(Verdict::Held));
        open.next += 1;
        let entry = Entry { access, change: 0, verdict };
        open.by_node.entry(entry.access.node().node).or_default().insert(number, entry);
        (number, receiver)
    }

    fn forget(&self, node: NodeId, number: u64) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_node) = open.by_node.get_mut(&node) {
            of_node.remove(&number);
            if of_node.is_empty() {
                open.by_node.remove(&node);
            }
        }
    }

    /// Stops all data to and from the node until the next decision; returns the entries to decide.
    fn hold_up(&self, node: NodeId) -> Vec<(u64, Entry)> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_node) = open.by_node.get_mut(&node) else { return Vec::new() };
        for entry in of_node.values_mut() {
            entry.change += 1;
            entry.verdict.send_if_modified(|verdict| {
                let held = *verdict == Verdict::Held;
                if held {
                    *verdict = Verdict::Undecided;
                }
                held
            });
        }
        of_node.iter().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    /// Stores a decision. Ignored if another change came since the decision began, unless it is [`Verdict::Lost`].
    fn decided(&self, node: NodeId, number: u64, change: u64, verdict: Verdict) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = open.by_node.get(&node).and_then(|of_node| of_node.get(&number));
        if let Some(entry) = entry.filter(|entry| entry.change == change || verdict == Verdict::Lost) {
            entry.verdict.send_replace(verdict);
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_node.keys().copied().collect()
    }
}

impl Engine {
    /// Registers access that is about to open, then checks it again: access lost in between is refused here.
    pub async fn while_held(self: &Arc<Self>, access: &NodeAccess) -> Result<WhileHeld, AccessError> {
        let (number, verdict) = self.held().add(access.clone());
        let held = WhileHeld { engine: self.clone(), node: access.node().node, number, verdict };
        still_held(&mut self.store().read().await?, access).await?;
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
                    Ok(Change::Missed) | Err(RecvError::Lagged(_)) => self.held().nodes(),
                    Err(RecvError::Closed) => return,
                },
                () = &mut sweep => {
                    sweep = next_sweep();
                    self.held().nodes()
                }
            };
            for node in changed {
                let open = self.held().hold_up(node);
                if !open.is_empty() {
                    let engine = self.clone();
                    let deciding = Box::pin(async move { engine.decide_again(node, open).await });
                    self.ports().runtime.spawn("decision over open access", deciding);
                }
            }
        }
    }

    async fn decide_again(&self, node: NodeId, open: Vec<(u64, Entry)>) {
        let given_up_at = self.ports().clock.now().plus(UNDECIDED_MAX);
        for (number, entry) in open {
            let given_up = self.ports().runtime.sleep_until(given_up_at);
            let verdict = tokio::select! {
                biased;
                verdict = self.verdict(&entry.access) => verdict,
                () = given_up => Verdict::Lost,
            };
            if verdict == Verdict::Lost {
                tracing::info!(node = %entry.access.name(), "what is open to a node ends: it is no longer held for it");
            }
            self.held().decided(node, number, entry.change, verdict);
        }
    }

    /// The verdict according to the rows; retries until they can be read.
    async fn verdict(&self, access: &NodeAccess) -> Verdict {
        loop {
            let decided = async { still_held(&mut self.store().read().await?, access).await };
            match decided.await {
                Ok(_) => return Verdict::Held,
                Err(AccessError::NotHeld(_)) => return Verdict::Lost,
                Err(AccessError::Store(error)) => tracing::warn!(%error, "open access could not be decided yet"),
            }
            self.ports().runtime.sleep_until(self.ports().clock.now().plus(STORE_RETRY)).await;
        }
    }
}

/// A tunnel that carries nothing while access is undecided, and fails with `ConnectionAborted` once access is lost.
pub(crate) struct HeldTunnel {
    inner: Box<dyn Tunnel>,
    present: Verdict,
    next: BoxFuture<'static, watch::Receiver<Verdict>>,
    _held: WhileHeld,
}

impl HeldTunnel {
    pub(crate) fn new(inner: Box<dyn Tunnel>, held: WhileHeld) -> Self {
        let mut verdict = held.verdict.clone();
        let present = *verdict.borrow_and_update();
        Self { inner, present, next: next_verdict(verdict), _held: held }
    }

    /// Ready while the tunnel may carry bytes; wakes the task when the verdict changes.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.present != Verdict::Lost
            && let Poll::Ready(mut verdict) = self.next.poll_unpin(context)
        {
            self.present = *verdict.borrow_and_update();
            self.next = next_verdict(verdict);
        }
        match self.present {
            Verdict::Held => Poll::Ready(Ok(())),
            Verdict::Undecided => Poll::Pending,
            Verdict::Lost => Poll::Ready(Err(std::io::Error::new(
                std::io::ErrorKind::ConnectionAborted,
                "the project holds the node no more",
            ))),
        }
    }
}

fn next_verdict(mut verdict: watch::Receiver<Verdict>) -> BoxFuture<'static, watch::Receiver<Verdict>> {
    async move {
        // The sender lives as long as the entry, which lives as long as the tunnel.
        let _ = verdict.changed().await;
        verdict
    }
    .boxed()
}

impl AsyncRead for HeldTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_held(context))?;
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl AsyncWrite for HeldTunnel {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_held(context))?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_held(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
