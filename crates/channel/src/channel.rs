//! The handle with which the rest of the control plane reaches nodes.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::Stream;
use gpuaas_model::{Clock, EnrolledNode, NodeId};
use gpuaas_wire::session::{JournalLine, TaskLine};
use tokio::sync::{mpsc, oneshot};

use crate::{
    connections::Connections,
    error::ChannelError,
    link::Link,
    peers::{PeerOptions, Peers},
    proxy_protocol::ProxyProtocol,
    rate_limits::RateLimits,
    recheck::Rechecks,
    report_throttle::ReportThrottle,
    session::Session,
};

/// Settings of the channel.
#[derive(Clone)]
pub struct ChannelOptions {
    /// A node without a connection counts as unreachable when nothing was received from it for this long (Kubernetes itself takes about 44 s).
    pub unreachable_after: Duration,
    /// Settings for dialling other replicas; `None` in a deployment with a single replica.
    pub peers: Option<PeerOptions>,
    /// Networks of the load balancers that send PROXY headers with nodes' connections.
    pub proxies: ProxyProtocol,
    /// Clock against which the expiry of certificates is checked.
    pub clock: Arc<dyn Clock>,
}

impl ChannelOptions {
    /// Default of [`ChannelOptions::unreachable_after`].
    pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);
}

/// Stream of a task's progress and result lines.
pub type TaskStream = Pin<Box<dyn Stream<Item = Result<TaskLine, ChannelError>> + Send>>;
/// Stream of a unit's journal lines.
pub type JournalStream = Pin<Box<dyn Stream<Item = Result<JournalLine, ChannelError>> + Send>>;

/// Handle that sends requests to nodes. Cheap to clone.
#[derive(Clone)]
pub struct Channel {
    pub(crate) shared: Arc<Shared>,
}

/// Work that a request causes and for which the service needs its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Checks the connections of a node that changed. The node is among the pending rechecks.
    Recheck(NodeId),
    /// Starts the unreachable timer of a node.
    ExpectReconnect(NodeId),
    /// Sends the present endpoints of the channel to every node that is connected here.
    BroadcastEndpoints,
}

/// The state of a channel, without the backend: requests to nodes need only this.
pub(crate) struct Shared {
    pub(crate) peers: Option<Peers>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) rate_limits: RateLimits,
    pub(crate) rechecks: Rechecks,
    pub(crate) report_throttle: ReportThrottle,
    pub(crate) clock: Arc<dyn Clock>,
    orders: mpsc::UnboundedSender<Order>,
    /// The control connection of each node that is connected to this replica.
    sessions: Mutex<HashMap<NodeId, Session>>,
    /// Bulk connections that were requested and have not arrived yet.
    awaited: Mutex<HashMap<String, (EnrolledNode, oneshot::Sender<Link>)>>,
}

impl Shared {
    /// Creates the state of a channel without connections, and the queue of orders to its service.
    pub(crate) fn new(options: &ChannelOptions) -> (Arc<Self>, mpsc::UnboundedReceiver<Order>) {
        let (orders, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Self {
            peers: options.peers.clone().map(Peers::new),
            connections: Arc::default(),
            rate_limits: RateLimits::default(),
            rechecks: Rechecks::default(),
            report_throttle: ReportThrottle::default(),
            clock: options.clock.clone(),
            orders,
            sessions: Mutex::default(),
            awaited: Mutex::default(),
        });
        (shared, queue)
    }

    /// Orders work that needs the backend. It waits until the service runs.
    pub(crate) fn order(&self, order: Order) {
        // Fails only if the service has ended, and with it all connections.
        let _ = self.orders.send(order);
    }

    pub(crate) fn session(&self, node: NodeId) -> Result<Session, ChannelError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&node).cloned().ok_or(ChannelError::NotConnected)
    }

    /// Returns the node's control connection if it belongs to exactly this enrollment.
    pub(crate) fn session_of(&self, enrolled: EnrolledNode) -> Result<Session, ChannelError> {
        let session = self.session(enrolled.node)?;
        if session.epoch == enrolled.epoch { Ok(session) } else { Err(ChannelError::NotConnected) }
    }

    /// Makes `session` the node's control connection and ends the previous one.
    pub(crate) fn install(&self, session: Session) {
        let before = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session.node, session);
        if let Some(before) = before {
            before.link.ended.cancel();
        }
    }

    /// Removes the ended session unless another one has already replaced it.
    pub(crate) fn remove(&self, ended: &Session) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.get(&ended.node).is_some_and(|session| session.connection == ended.connection) {
            sessions.remove(&ended.node);
        }
    }

    /// Returns every control connection that this replica holds.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn await_bulk(&self, request: &str, node: EnrolledNode) -> oneshot::Receiver<Link> {
        let (sender, arrival) = oneshot::channel();
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(request.to_owned(), (node, sender));
        arrival
    }

    pub(crate) fn stop_awaiting_bulk(&self, request: &str) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(request);
    }

    /// Hands a bulk connection to the request that waits for it; ends a connection that was not requested from exactly this enrollment.
    pub(crate) fn deliver_bulk(&self, request: &str, session: Session) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_expected = awaited.get(request).is_some_and(|(node, _)| *node == session.enrolled());
        let waiting = if is_expected { awaited.remove(request) } else { None };
        drop(awaited);
        let ended = session.link.ended.clone();
        let delivered = waiting.is_some_and(|(_, arrives)| arrives.send(session.link).is_ok());
        if !delivered {
            ended.cancel();
        }
    }
}
