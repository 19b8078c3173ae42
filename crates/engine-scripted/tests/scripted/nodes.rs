//! Nodes that act as a test scripts them.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use gpuaas_engine::{
    ownership::NodeAccess,
    port::{DispatchError, Nodes},
};
use gpuaas_model::{Code, NodeId, TaskId};
use gpuaas_wire::{
    session::TaskLine,
    task::{TaskFailure, TaskOutcome, TaskProgress},
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A node's reaction to a task.
pub(crate) enum Reaction {
    /// Sends these lines, then closes the stream.
    Send(Vec<TaskLine>),
    /// Reports this progress, then the line that the test sends. The connection is lost if the test drops the sender.
    Hold(&'static str, oneshot::Receiver<TaskLine>),
    /// Has no channel.
    Disconnected,
}

/// A line that ends a task with success.
pub(crate) fn done(result: Value) -> TaskLine {
    TaskLine::Ended(TaskOutcome::Succeeded { result })
}

/// A line that ends a task with a failure.
pub(crate) fn failed(code: Code, message: &str) -> TaskLine {
    TaskLine::Ended(TaskOutcome::Failed { failure: TaskFailure::new(code, message.to_owned()) })
}

/// Returns a reaction that reports `says` as its progress and ends with the line that the test sends.
pub(crate) fn hold(says: &'static str) -> (oneshot::Sender<TaskLine>, Reaction) {
    let (end, held) = oneshot::channel();
    (end, Reaction::Hold(says, held))
}

#[derive(Default)]
pub(crate) struct Scripted {
    /// Nodes that never answer a delivery of keys.
    pub(crate) stalled: Mutex<Vec<NodeId>>,
    /// Nodes that refuse the keys.
    pub(crate) refusing: Mutex<Vec<NodeId>>,
    /// Node of each delivery of keys, in order.
    pub(crate) delivered: Mutex<Vec<NodeId>>,
    /// Reactions to the next tasks, in order; further tasks succeed.
    reactions: Mutex<VecDeque<Reaction>>,
    /// Number of dispatches, failed ones included.
    sent: AtomicU64,
    /// Node of each change of the units to observe, in order.
    pub(crate) observed: Mutex<Vec<NodeId>>,
    /// Requested cancellations, in order.
    pub(crate) cancelled: Mutex<Vec<(NodeId, TaskId)>>,
    /// Makes cancellations wait forever.
    pub(crate) ignores_cancellation: AtomicBool,
}

impl Scripted {
    pub(crate) fn deliveries_to(&self, node: NodeId) -> usize {
        self.delivered.lock().unwrap().iter().filter(|given| **given == node).count()
    }

    /// Appends reactions to the next tasks, in order.
    pub(crate) fn react(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.reactions.lock().unwrap().extend(reactions);
    }

    /// Appends tasks that are accepted and end with these lines, in order.
    pub(crate) fn end_tasks(&self, ends: impl IntoIterator<Item = TaskLine>) {
        self.react(ends.into_iter().map(|end| Reaction::Send(vec![TaskLine::Accepted, end])));
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Nodes for Scripted {
    async fn dispatch(
        &self,
        _: &NodeAccess,
        _: &str,
    ) -> Result<BoxStream<'static, Result<TaskLine, DispatchError>>, DispatchError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match self.reactions.lock().unwrap().pop_front() {
            None => Ok(stream::iter([Ok(done(json!({ "changed": true })))]).boxed()),
            Some(Reaction::Send(lines)) => Ok(stream::iter(lines.into_iter().map(Ok)).boxed()),
            Some(Reaction::Hold(says, end)) => {
                let progress = TaskLine::Progress(TaskProgress { text: says.to_owned(), percent: None });
                let end = async move { end.await.map_err(|_| DispatchError::Lost("the sender is dropped".to_owned())) };
                Ok(stream::iter([Ok(progress)]).chain(end.into_stream()).boxed())
            }
            Some(Reaction::Disconnected) => Err(DispatchError::NotConnected),
        }
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        self.cancelled.lock().unwrap().push((node, task));
        if self.ignores_cancellation.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn observe(&self, node: NodeId, _: Vec<String>) {
        self.observed.lock().unwrap().push(node);
    }

    async fn send_keys(&self, node: NodeId, _: &str) -> bool {
        self.delivered.lock().unwrap().push(node);
        let is_in = |nodes: &Mutex<Vec<NodeId>>| nodes.lock().unwrap().contains(&node);
        if is_in(&self.stalled) {
            std::future::pending::<()>().await;
        }
        !is_in(&self.refusing)
    }

    fn recheck(&self, _: NodeId) {}

    fn recheck_all(&self) {}

    fn expect_reconnect(&self, _: NodeId) {}

    fn broadcast_endpoints(&self) {}

    fn close_channels(&self) {}
}
