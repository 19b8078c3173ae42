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
    port::{DispatchError, Nodes, TaskUpdate},
};
use gpuaas_model::{Code, NodeId, TaskId};
use gpuaas_wire::task::{TaskFailure, TaskOutcome, TaskProgress};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A node's reaction to a task.
pub(crate) enum Act {
    /// Sends these updates, then closes the stream.
    Say(Vec<TaskUpdate>),
    /// Reports this progress, then the update that the test sends. The connection is lost if the test drops the sender.
    Held(&'static str, oneshot::Receiver<TaskUpdate>),
    /// Has no channel.
    Absent,
}

/// An update that ends a task with success.
pub(crate) fn done(result: Value) -> TaskUpdate {
    TaskUpdate::Ended(TaskOutcome::Succeeded { result })
}

/// An update that ends a task with a failure.
pub(crate) fn failed(code: Code, message: &str) -> TaskUpdate {
    TaskUpdate::Ended(TaskOutcome::Failed { failure: TaskFailure::new(code, message.to_owned()) })
}

/// Returns an act that reports `says` as its progress and ends with the update that the test sends.
pub(crate) fn held(says: &'static str) -> (oneshot::Sender<TaskUpdate>, Act) {
    let (end, held) = oneshot::channel();
    (end, Act::Held(says, held))
}

#[derive(Default)]
pub(crate) struct Scripted {
    /// Nodes that never answer a delivery of keys.
    pub(crate) stalled: Mutex<Vec<NodeId>>,
    /// Nodes that refuse the keys.
    pub(crate) refusing: Mutex<Vec<NodeId>>,
    /// Node of each delivery of keys, in order.
    pub(crate) given: Mutex<Vec<NodeId>>,
    /// Reactions to the next tasks, in order; further tasks succeed.
    acts: Mutex<VecDeque<Act>>,
    /// Number of dispatches, failed ones included.
    sent: AtomicU64,
    /// Requested cancellations, in order.
    pub(crate) cancelled: Mutex<Vec<(NodeId, TaskId)>>,
    /// Makes cancellations wait forever.
    pub(crate) is_deaf: AtomicBool,
}

impl Scripted {
    pub(crate) fn times_given(&self, node: NodeId) -> usize {
        self.given.lock().unwrap().iter().filter(|given| **given == node).count()
    }

    /// Appends reactions to the next tasks, in order.
    pub(crate) fn will(&self, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().unwrap().extend(acts);
    }

    /// Appends tasks that are accepted and end with these updates, in order.
    pub(crate) fn will_end(&self, ends: impl IntoIterator<Item = TaskUpdate>) {
        self.will(ends.into_iter().map(|end| Act::Say(vec![TaskUpdate::Accepted, end])));
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
    ) -> Result<BoxStream<'static, Result<TaskUpdate, DispatchError>>, DispatchError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match self.acts.lock().unwrap().pop_front() {
            None => Ok(stream::iter([Ok(done(json!({ "changed": true })))]).boxed()),
            Some(Act::Say(updates)) => Ok(stream::iter(updates.into_iter().map(Ok)).boxed()),
            Some(Act::Held(says, end)) => {
                let progress = TaskUpdate::Progress(TaskProgress { text: says.to_owned(), percent: None });
                let end = async move { end.await.map_err(|_| DispatchError::Lost("the test let it go".to_owned())) };
                Ok(stream::iter([Ok(progress)]).chain(end.into_stream()).boxed())
            }
            Some(Act::Absent) => Err(DispatchError::NotConnected),
        }
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        self.cancelled.lock().unwrap().push((node, task));
        if self.is_deaf.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn observe(&self, _: NodeId, _: Vec<String>) {}

    async fn give_keys(&self, node: NodeId, _: &str) -> bool {
        self.given.lock().unwrap().push(node);
        let is_in = |nodes: &Mutex<Vec<NodeId>>| nodes.lock().unwrap().contains(&node);
        if is_in(&self.stalled) {
            std::future::pending::<()>().await;
        }
        !is_in(&self.refusing)
    }

    fn readmit(&self, _: NodeId) {}

    fn readmit_all(&self) {}

    fn expect_back(&self, _: NodeId) {}

    async fn spread_endpoints(&self) {}

    fn release_all(&self) {}
}
