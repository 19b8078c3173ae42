//! Nodes that do what a test says.

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

/// What a node does with a task that it is sent.
pub(crate) enum Act {
    /// It says this, and no more.
    Say(Vec<TaskUpdate>),
    /// It says what it is doing, and then what the test tells it; it is lost when the test tells it nothing.
    Held(&'static str, oneshot::Receiver<TaskUpdate>),
    /// It has no channel.
    Absent,
}

/// An update that ends a task well.
pub(crate) fn done(result: Value) -> TaskUpdate {
    TaskUpdate::Ended(TaskOutcome::Succeeded { result })
}

/// An update that ends it otherwise.
pub(crate) fn failed(code: Code, message: &str) -> TaskUpdate {
    TaskUpdate::Ended(TaskOutcome::Failed { failure: TaskFailure::new(code, message.to_owned()) })
}

/// A task that ends when the test says so.
pub(crate) fn held(says: &'static str) -> (oneshot::Sender<TaskUpdate>, Act) {
    let (end, held) = oneshot::channel();
    (end, Act::Held(says, held))
}

#[derive(Default)]
pub(crate) struct Scripted {
    /// Nodes that never answer when they are given keys.
    pub(crate) stalled: Mutex<Vec<NodeId>>,
    /// Nodes that refuse them.
    pub(crate) refusing: Mutex<Vec<NodeId>>,
    /// To whom keys were given, in order.
    pub(crate) given: Mutex<Vec<NodeId>>,
    /// What is done with the next tasks; whoever has nothing left to do succeeds.
    acts: Mutex<VecDeque<Act>>,
    /// How many tasks were sent.
    sent: AtomicU64,
    /// Tasks whose end was asked for, in order.
    pub(crate) cancelled: Mutex<Vec<(NodeId, TaskId)>>,
    /// Whether nobody answers who is told to end.
    pub(crate) is_deaf: AtomicBool,
}

impl Scripted {
    pub(crate) fn times_given(&self, node: NodeId) -> usize {
        self.given.lock().unwrap().iter().filter(|given| **given == node).count()
    }

    /// What is done with the tasks that come next, one after the other.
    pub(crate) fn will(&self, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().unwrap().extend(acts);
    }

    /// The next tasks end like this.
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
