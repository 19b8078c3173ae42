//! The way to nodes whose channel another replica holds: the same requests, sent to that replica, which hands them on.
//!
//! Short requests of all nodes share one connection per replica. A stream that may carry much has one of its own, so that a reader who
//! stops reading holds up nobody else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{EnrolledNode, NodeId, ReplicaId};
use gpuaas_trust::ReplicaIdentity;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::{
    channel::ChannelError,
    link::{Link, Streams},
};

/// Longest time until another replica's connection stands.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which replica holds a node's channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The replica.
    pub replica: ReplicaId,
    /// Where it listens for others, `host:port`.
    pub address: String,
    /// The run of the agent that is connected there.
    pub instance: String,
}

/// How a replica dials others.
#[derive(Clone)]
pub struct PeerOptions {
    /// The control plane that all of them are.
    pub control_plane: String,
    /// Shows this replica's certificate; trusts the authority alone.
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

    /// The way to a node for short requests.
    pub(crate) async fn control(&self, holder: &Holder, node: NodeId) -> Result<Link, ChannelError> {
        let prefix = format!("/nodes/{node}/control");
        let known = self.shared.lock().unwrap_or_else(PoisonError::into_inner).get(&holder.replica).cloned();
        if let Some(link) = known.filter(|link| !link.ended.is_cancelled()) {
            return Ok(link.below(prefix));
        }
        let link = self.dial(holder, Streams::Narrow).await?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended go with the first that comes.
        shared.retain(|_, link| !link.ended.is_cancelled());
        shared.insert(holder.replica, link.clone());
        Ok(link.below(prefix))
    }

    /// The same to a node in one enrollment.
    pub(crate) async fn enrolled(&self, holder: &Holder, node: EnrolledNode) -> Result<Link, ChannelError> {
        let EnrolledNode { node, epoch } = node;
        Ok(self.control(holder, node).await?.below(format!("/nodes/{node}/enrolled/{epoch}")))
    }

    /// The way to what the holder itself does with a node's channel.
    pub(crate) async fn holder(&self, holder: &Holder, node: NodeId) -> Result<Link, ChannelError> {
        Ok(self.control(holder, node).await?.below(format!("/nodes/{node}")))
    }

    /// The way to a node in one enrollment for one stream, on a connection of its own; the holder asks the node for one as well.
    pub(crate) async fn bulk(&self, holder: &Holder, node: EnrolledNode) -> Result<Link, ChannelError> {
        let EnrolledNode { node, epoch } = node;
        Ok(self.dial(holder, Streams::Wide).await?.below(format!("/nodes/{node}/bulk/{epoch}")))
    }

    async fn dial(&self, holder: &Holder, streams: Streams) -> Result<Link, ChannelError> {
        // Boxed: a handshake is large, and every request to a node would carry the room for one.
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, Box::pin(self.dialled(holder, streams))).await;
        dialled
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
            .map_err(|error| ChannelError::Peer(format!("{} at {}: {error}", holder.replica, holder.address)))
    }

    async fn dialled(&self, holder: &Holder, streams: Streams) -> Result<Link, String> {
        let stream = TcpStream::connect(&holder.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let identity = ReplicaIdentity { control_plane: self.options.control_plane.clone(), replica: holder.replica };
        // Whoever took that address since holds no certificate for this name.
        let name = ServerName::try_from(identity.server_name()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(self.options.tls.clone()));
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        Link::open(stream, streams, CancellationToken::new()).await.map_err(|error| error.to_string())
    }
}
