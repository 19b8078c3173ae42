//! The listener for other replicas, and how they are found and connected to.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_channel::{Channel, Holder, Holders, PeerOptions, PeerService};
use gpuaas_engine::Keys;
use gpuaas_model::{NodeId, ReplicaId};
use gpuaas_store::Store;
use gpuaas_trust::{ReplicaIdentity, replica_client_config, replica_server_config};
use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::{bind, bound_address, certificates::Certificates, error::ServerError, options::ServerOptions};

/// A bound listener. It accepts connections once its service runs.
pub(crate) struct ReplicaListener {
    /// Address `host:port` at which other replicas reach this one.
    pub(crate) address: String,
    /// Settings for connecting to other replicas.
    pub(crate) dial: PeerOptions,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
}

impl ReplicaListener {
    pub(crate) async fn open(
        options: &ServerOptions,
        keys: &Keys,
        certificates: &Certificates,
        sessions: Sessions,
    ) -> Result<Self, ServerError> {
        let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
        let listener = bind("the replicas' listener", options.replica_listen).await?;
        let bound = bound_address(&listener, options.replica_listen);
        let address = options.replica_address.clone().unwrap_or_else(|| bound.to_string());
        let tls = replica_server_config(certificates.replica.clone(), &certificates.trusted)
            .map_err(|error| trust(&error))?;
        let client = replica_client_config(certificates.trusted.clone(), certificates.replica.clone())
            .map_err(|error| trust(&error))?;
        let holders = Arc::new(sessions);
        let dial = PeerOptions { holders, control_plane: keys.control_plane().to_owned(), tls: client };
        Ok(Self { address, dial, listener, tls: Arc::new(tls) })
    }

    pub(crate) fn service(self, channel: Channel, identity: ReplicaIdentity) -> PeerService {
        PeerService::new(channel, identity.control_plane, self.listener, self.tls)
    }
}

/// The rows that say which replica holds a node's channel.
pub(crate) struct Sessions {
    pub(crate) store: Store,
    /// The replica of this process.
    pub(crate) own: ReplicaId,
}

#[async_trait]
impl Holders for Sessions {
    async fn holder(&self, node: NodeId) -> Option<Holder> {
        let session = async { self.store.read().await?.session(node).await };
        let session = session.await.unwrap_or_else(|error| {
            tracing::error!(%node, %error, "could not look up the replica of a node's channel");
            None
        })?;
        let address = session.address.filter(|_| session.replica != self.own)?;
        Some(Holder { replica: session.replica, address, instance: session.instance })
    }
}
