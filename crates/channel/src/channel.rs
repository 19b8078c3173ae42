//! The handle by which the rest of the control plane reaches nodes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::Stream;
use gpuaas_model::NodeId;
use gpuaas_wire::session::{JournalLine, Refusal, TaskLine};
use tokio::sync::oneshot;

use crate::{backend::ChannelBackend, liveness::Liveness, session::Session};

/// How the channel listens.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// Where.
    pub listen: SocketAddr,
    /// Silence after which a node counts as unreachable (Kubernetes itself takes about 44 s).
    pub unreachable_after: Duration,
}

impl ChannelOptions {
    /// Silence after which a node counts as unreachable, where nothing else is wanted.
    pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);
}

/// Why something did not reach a node or come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// There is no connection now.
    #[error("the node has no channel")]
    NotConnected,
    /// The connection ended in the middle.
    #[error("the channel ended: {0}")]
    Lost(String),
    /// The agent said no.
    #[error("the agent refused: {}", .0.message)]
    Refused(Refusal),
    /// The agent said something that is not in the protocol.
    #[error("the agent does not keep to the protocol: {0}")]
    Protocol(String),
}

/// A task's lines.
pub type TaskStream = Pin<Box<dyn Stream<Item = Result<TaskLine, ChannelError>> + Send>>;
/// A journal's lines.
pub type JournalStream = Pin<Box<dyn Stream<Item = Result<JournalLine, ChannelError>> + Send>>;

/// Reaches nodes. Cheap to clone.
#[derive(Clone)]
pub struct Channel {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn ChannelBackend>,
    pub(crate) liveness: Liveness,
    /// The control connection of each node.
    sessions: Mutex<HashMap<NodeId, Session>>,
    /// Bulk connections that were asked for and did not come yet.
    awaited: Mutex<HashMap<String, (NodeId, oneshot::Sender<Session>)>>,
}

impl Shared {
    pub(crate) fn new(backend: Arc<dyn ChannelBackend>, unreachable_after: Duration) -> Arc<Self> {
        let liveness = Liveness::new(backend.clone(), unreachable_after);
        Arc::new(Self { backend, liveness, sessions: Mutex::default(), awaited: Mutex::default() })
    }

    pub(crate) fn session(&self, node: NodeId) -> Result<Session, ChannelError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&node).cloned().ok_or(ChannelError::NotConnected)
    }

    /// Makes `session` the node's control connection and ends the one before.
    pub(crate) fn install(&self, session: Session) {
        let before = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session.node, session);
        if let Some(before) = before {
            before.ended.cancel();
        }
    }

    /// Takes the ended session out. False when another has taken its place already.
    pub(crate) fn remove(&self, ended: &Session) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let current = sessions
            .get(&ended.node)
            .is_some_and(|session| session.hello.instance == ended.hello.instance && session.ended.is_cancelled());
        if current {
            sessions.remove(&ended.node);
        }
        current
    }

    pub(crate) fn await_bulk(&self, request: &str, node: NodeId) -> oneshot::Receiver<Session> {
        let (arrives, arrival) = oneshot::channel();
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(request.to_owned(), (node, arrives));
        arrival
    }

    pub(crate) fn forget_bulk(&self, request: &str) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(request);
    }

    /// Hands a bulk connection to whoever asked for it; one that nobody asked this very node for is dropped.
    pub(crate) fn deliver_bulk(&self, request: &str, session: Session) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = awaited.get(request).is_some_and(|(node, _)| *node == session.node);
        let waiting = if asked { awaited.remove(request) } else { None };
        drop(awaited);
        let ended = session.ended.clone();
        let delivered = waiting.is_some_and(|(_, arrives)| arrives.send(session).is_ok());
        if !delivered {
            ended.cancel();
        }
    }
}
