//! Requests that the control plane sends to connected nodes.

use std::time::Duration;

use futures::{StreamExt, stream};
use gpuaas_model::{Code, EnrolledNode, NodeId, TaskId};
use gpuaas_wire::{
    session::{
        BulkRequest, ChannelEndpoints, Hello, JournalLine, JournalRequest, LINE_BYTES_MAX, Observe, Refusal,
        TUNNEL_PORTS, TaskLine, TaskRef, path,
    },
    task::{TaskFailure, TaskOutcome},
};
use http::{HeaderMap, Method};

use crate::{
    channel::{Channel, JournalStream, Order, TaskStream},
    error::ChannelError,
    journal::bounded,
    lines::{Rate, lines},
    link::{Link, full, with_timeout},
    peers::{Holder, Peers},
    reports::observe,
    session::Session,
    tunnel::TunnelIo,
};

/// Longest wait for a requested bulk connection.
const BULK_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of nodes to which endpoints are sent concurrently.
const SEND_CONCURRENCY: usize = 64;
/// Time within which an older connection of the same identity must answer; after that a newer connection replaces it.
const CLONE_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

impl Channel {
    /// Pushes a signed envelope to the node in this enrollment and streams the task's lines.
    /// A refusal ends the task with the refusal's code.
    pub async fn dispatch(&self, node: EnrolledNode, envelope: &str) -> Result<TaskStream, ChannelError> {
        let link = self.link_to(node).await?;
        match link.request(Method::POST, path::TASKS, HeaderMap::new(), full(envelope.to_owned())).await {
            Ok(response) => Ok(Box::pin(lines::<TaskLine, _>(response.into_body(), LINE_BYTES_MAX, Rate::REPORTS))),
            Err(ChannelError::Refused(refusal)) => {
                let failure = TaskFailure::new(refusal.code, refusal.message);
                let end = TaskLine::Ended(TaskOutcome::Failed { failure });
                Ok(Box::pin(stream::once(async move { Ok(end) })))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the agent to cancel a task.
    pub async fn cancel(&self, node: NodeId, task: TaskId) -> Result<(), ChannelError> {
        with_timeout(async { self.link(node).await?.post(path::CANCEL, &TaskRef { task }).await.map(|_| ()) }).await
    }

    /// Sends the agent a signed key set.
    pub async fn send_keys(&self, node: NodeId, signed_set: &str) -> Result<(), ChannelError> {
        with_timeout(async { send_keys(&self.link(node).await?, signed_set).await }).await
    }

    /// Sets the units whose changes the node reports. The reports go to the replica that holds the node's channel.
    pub async fn observe(&self, node: NodeId, units: Vec<String>) -> Result<(), ChannelError> {
        match self.holder(node).await? {
            None => self.observe_here(node, units).await,
            Some((peers, holder)) => {
                let link = peers.holder(&holder, node).await?;
                with_timeout(async { link.post("/observe", &Observe { units, drift: true }).await.map(|_| ()) }).await
            }
        }
    }

    pub(crate) async fn observe_here(&self, node: NodeId, units: Vec<String>) -> Result<(), ChannelError> {
        let session = self.shared.session(node)?;
        observe(&self.shared, session, units).await
    }

    /// Checks a changed node again and ends its connections here that would no longer be admitted as before.
    pub fn recheck(&self, node: NodeId) {
        let shared = &self.shared;
        if !shared.connections.of(node).is_empty() && shared.rechecks.schedule(node) {
            shared.order(Order::Recheck(node));
        }
    }

    /// Checks every node that is connected here, for changes that are not attributed to a node.
    pub fn recheck_all(&self) {
        for node in self.shared.connections.nodes() {
            self.recheck(node);
        }
    }

    /// Sends the current channel endpoints to every node whose channel this replica holds.
    pub fn broadcast_endpoints(&self) {
        self.shared.order(Order::BroadcastEndpoints);
    }

    /// Sends these channel endpoints to every node whose channel this replica holds.
    pub(crate) async fn send_to_all(&self, channels: Vec<String>) {
        let sessions = stream::iter(self.shared.sessions());
        sessions
            .for_each_concurrent(SEND_CONCURRENCY, |session| {
                let channels = channels.clone();
                async move { send_endpoints(&session.link, channels).await }
            })
            .await;
    }

    /// Ends every channel that this replica holds; the nodes reconnect to this or another replica.
    pub fn close_channels(&self) {
        for session in self.shared.sessions() {
            session.link.ended.cancel();
        }
    }

    /// Opens a byte stream to one of the allowlisted ports of the node in this enrollment, on a dedicated connection.
    pub async fn open_tunnel(&self, node: EnrolledNode, port: u16) -> Result<TunnelIo, ChannelError> {
        if !TUNNEL_PORTS.contains(&port) {
            let message = format!("tunnels to port {port} are not allowed");
            return Err(ChannelError::Refused(Refusal { code: Code::Forbidden, message }));
        }
        let link = self.bulk(node).await?;
        with_timeout(TunnelIo::open(link, port)).await
    }

    /// Streams the journal of one unit of the node in this enrollment, on a dedicated connection.
    pub async fn journal(&self, node: EnrolledNode, request: &JournalRequest) -> Result<JournalStream, ChannelError> {
        let link = self.bulk(node).await?;
        let end = link.ended.clone().drop_guard();
        let response = with_timeout(link.post(path::JOURNAL, request)).await?;
        let stream = Box::pin(lines::<JournalLine, _>(response.into_body(), LINE_BYTES_MAX, Rate::JOURNALS));
        // The connection lives as long as the stream is read.
        Ok(Box::pin(bounded(stream).map(move |line| {
            let _alive = &end;
            line
        })))
    }

    /// Returns the link for short requests to a node: its connection here, or through the replica that holds its channel.
    async fn link(&self, node: NodeId) -> Result<Link, ChannelError> {
        match self.holder(node).await? {
            None => self.link_here(node),
            Some((peers, holder)) => peers.control(&holder, node).await,
        }
    }

    pub(crate) fn link_here(&self, node: NodeId) -> Result<Link, ChannelError> {
        self.shared.session(node).map(|session| session.link)
    }

    /// Like [`Self::link`], for one enrollment of the node.
    async fn link_to(&self, node: EnrolledNode) -> Result<Link, ChannelError> {
        match self.holder(node.node).await? {
            None => self.link_to_here(node),
            Some((peers, holder)) => peers.enrolled(&holder, node).await,
        }
    }

    pub(crate) fn link_to_here(&self, node: EnrolledNode) -> Result<Link, ChannelError> {
        self.shared.session_of(node).map(|session| session.link)
    }

    /// Opens a link to one enrollment of a node for a single stream.
    async fn bulk(&self, node: EnrolledNode) -> Result<Link, ChannelError> {
        match self.holder(node.node).await? {
            None => self.bulk_here(node).await,
            Some((peers, holder)) => peers.bulk(&holder, node).await,
        }
    }

    /// Returns the other replica that holds the node's channel; `None` when this replica holds it.
    async fn holder(&self, node: NodeId) -> Result<Option<(&Peers, Holder)>, ChannelError> {
        if self.shared.session(node).is_ok() {
            return Ok(None);
        }
        let Some(peers) = &self.shared.peers else { return Err(ChannelError::NotConnected) };
        let holder = peers.holder_of(node).await.ok_or(ChannelError::NotConnected)?;
        Ok(Some((peers, holder)))
    }

    pub(crate) async fn bulk_here(&self, node: EnrolledNode) -> Result<Link, ChannelError> {
        let control = self.link_to_here(node)?;
        let request = uuid::Uuid::new_v4().to_string();
        let arrival = self.shared.await_bulk(&request, node);
        let requested = with_timeout(control.post(path::CONNECTIONS, &BulkRequest { request: request.clone() })).await;
        let link = match requested {
            Ok(_) => tokio::time::timeout(BULK_TIMEOUT, arrival).await,
            Err(error) => {
                self.shared.stop_awaiting_bulk(&request);
                return Err(error);
            }
        };
        self.shared.stop_awaiting_bulk(&request);
        match link {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(_)) | Err(_) => Err(ChannelError::Lost("the node did not open the requested connection".to_owned())),
        }
    }

    /// Returns whether a live agent other than `newcomer` answers under the node's identity.
    pub(crate) async fn is_cloned(&self, newcomer: &Session) -> bool {
        let node = newcomer.node;
        let Ok(holder) = self.holder(node).await else { return false };
        let instance = match &holder {
            None => self.shared.session(node).map(|session| session.hello.instance).unwrap_or_default(),
            Some((_, holder)) => holder.instance.clone(),
        };
        if instance == newcomer.hello.instance {
            return false;
        }
        let older = async { self.link(node).await?.get::<Hello>(path::HELLO).await };
        match tokio::time::timeout(CLONE_PROBE_TIMEOUT, older).await {
            Ok(Ok(hello)) => hello.instance != newcomer.hello.instance,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

pub(crate) async fn send_keys(link: &Link, signed_set: &str) -> Result<(), ChannelError> {
    with_timeout(link.request(Method::POST, path::KEYS, HeaderMap::new(), full(signed_set.to_owned())))
        .await
        .map(|_| ())
}

/// Sends the agent the channel endpoints. An older agent that does not know this request keeps its configured address.
pub(crate) async fn send_endpoints(link: &Link, channels: Vec<String>) {
    let sent = async { link.post(path::ENDPOINTS, &ChannelEndpoints { channels }).await.map(|_| ()) };
    if let Err(error) = with_timeout(sent).await {
        tracing::debug!(%error, "could not send the endpoints to the agent");
    }
}
