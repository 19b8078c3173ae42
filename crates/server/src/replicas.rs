//! The listener for other replicas, and the identity by which they know each other: made anew at every start.

use std::sync::Arc;

use gpuaas_channel::{Channel, PeerOptions, PeerService};
use gpuaas_engine::{Keys, port::Ports};
use gpuaas_trust::{ALPN_REPLICA, ReplicaIdentity, node_client_config, replica_server_config};
use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::{bind, error::ServerError, options::ServerOptions, shown};

/// A bound listener; nothing is accepted before its service runs.
pub(crate) struct Listening {
    /// Where others reach it, `host:port`.
    pub(crate) address: String,
    /// How others are dialled from here.
    pub(crate) dial: PeerOptions,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
}

impl Listening {
    pub(crate) async fn open(
        options: &ServerOptions,
        keys: &Keys,
        identity: &ReplicaIdentity,
        ports: &Ports,
    ) -> Result<Self, ServerError> {
        let authority = keys.authority();
        let trust = |error: &dyn std::fmt::Display| ServerError::Trust(error.to_string());
        let issue = || authority.issue_replica(identity, ports.clock.now()).map_err(|error| trust(&error));
        let listener = bind("the replicas' listener", options.replica_listen).await?;
        let bound = shown(&listener, options.replica_listen);
        let address = options.replica_address.clone().unwrap_or_else(|| bound.to_string());
        let (chain, key) = issue()?;
        let tls = replica_server_config(chain, key, authority.certificate()).map_err(|error| trust(&error))?;
        let (chain, key) = issue()?;
        let client = node_client_config(authority.certificate(), chain, key, ALPN_REPLICA);
        let dial =
            PeerOptions { control_plane: identity.control_plane.clone(), tls: client.map_err(|error| trust(&error))? };
        Ok(Self { address, dial, listener, tls: Arc::new(tls) })
    }

    pub(crate) fn service(self, channel: Channel, identity: ReplicaIdentity) -> PeerService {
        PeerService::new(channel, identity.control_plane, self.listener, self.tls)
    }
}
