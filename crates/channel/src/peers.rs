//! Links to nodes whose channel another replica holds: the same requests, sent to that replica, which forwards them.
//!
//! Short requests to all nodes share one connection per replica. A stream that may carry much data has a dedicated connection, so that a
//! reader that stops reading blocks no other stream.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use gpuaas_model::{EnrolledNode, NodeId, ReplicaId};
use gpuaas_trust::ReplicaIdentity;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ChannelError,
    link::{Link, StreamWindow},
};

/// Longest time to connect to another replica, TLS and HTTP/2 handshakes included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The replica that holds a node's channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the replica, which its certificate must name.
    pub replica: ReplicaId,
    /// Address on which it listens for other replicas, `host:port`.
    pub address: String,
    /// Instance id of the agent process that is connected to it.
    pub instance: String,
}

/// Finds the replicas that hold nodes' channels.
#[async_trait]
pub trait Holders: Send + Sync {
    /// Returns the other replica that holds the node's channel, if any.
    async fn holder(&self, node: NodeId) -> Option<Holder>;
}

/// Settings with which a replica dials other replicas.
#[derive(Clone)]
pub struct PeerOptions {
    /// Finds the replica to dial for a node.
    pub holders: Arc<dyn Holders>,
    /// Name of the control plane to which all replicas belong.
    pub control_plane: String,
    /// TLS client settings: present this replica's certificate and trust only the control plane's authority.
    pub tls: ClientConfig,
}

/// Connections to other replicas.
pub(crate) struct Peers {
    options: PeerOptions,
    shared: Mutex<HashMap<ReplicaId, Link>>,
}

impl Peers {
    pub(crate) fn new(options: PeerOptions) -> Self {
        Self { options, shared: Mutex::default() }
    }

    /// Returns the other replica that holds the node's channel, if any.
    pub(crate) async fn holder_of(&self, node: NodeId) -> Option<Holder> {
        self.options.holders.holder(node).await
    }

    /// Returns a link to a node for short requests; reuses the replica's shared connection.
    pub(crate) async fn control(&self, holder: &Holder, node: NodeId) -> Result<Link, ChannelError> {
        let prefix = format!("/nodes/{node}/control");
        let known = self.shared.lock().unwrap_or_else(PoisonError::into_inner).get(&holder.replica).cloned();
        if let Some(link) = known.filter(|link| !link.ended.is_cancelled()) {
            return Ok(link.with_prefix(prefix));
        }
        let link = self.dial(holder, StreamWindow::Small).await?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended connections are removed whenever a new one is added.
        shared.retain(|_, link| !link.ended.is_cancelled());
        shared.insert(holder.replica, link.clone());
        Ok(link.with_prefix(prefix))
    }

    /// Like [`Self::control`], for one enrollment of the node.
    pub(crate) async fn enrolled(&self, holder: &Holder, node: EnrolledNode) -> Result<Link, ChannelError> {
        let EnrolledNode { node, epoch } = node;
        Ok(self.control(holder, node).await?.with_prefix(format!("/nodes/{node}/enrolled/{epoch}")))
    }

    /// Returns a link to requests that the holder itself answers for a node.
    pub(crate) async fn holder(&self, holder: &Holder, node: NodeId) -> Result<Link, ChannelError> {
        Ok(self.control(holder, node).await?.with_prefix(format!("/nodes/{node}")))
    }

    /// Opens a link to one enrollment of a node for a single stream, on a dedicated connection; the holder requests one from the node, too.
    pub(crate) async fn bulk(&self, holder: &Holder, node: EnrolledNode) -> Result<Link, ChannelError> {
        let EnrolledNode { node, epoch } = node;
        Ok(self.dial(holder, StreamWindow::Large).await?.with_prefix(format!("/nodes/{node}/bulk/{epoch}")))
    }

    async fn dial(&self, holder: &Holder, streams: StreamWindow) -> Result<Link, ChannelError> {
        // Boxed: the future of a handshake is large, and every request's future would contain it.
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, Box::pin(self.connect(holder, streams))).await;
        dialled
            .unwrap_or_else(|_| Err("it did not respond in time".to_owned()))
            .map_err(|error| ChannelError::Peer(format!("{} at {}: {error}", holder.replica, holder.address)))
    }

    async fn connect(&self, holder: &Holder, streams: StreamWindow) -> Result<Link, String> {
        let stream = TcpStream::connect(&holder.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let identity = ReplicaIdentity { control_plane: self.options.control_plane.clone(), replica: holder.replica };
        // Another process that has taken over the address has no certificate for this name.
        let name = ServerName::try_from(identity.server_name()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(self.options.tls.clone()));
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        Link::open(stream, streams, CancellationToken::new()).await.map_err(|error| error.to_string())
    }
}
