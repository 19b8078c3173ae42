//! What the channel asks of rows and engine, about the one node whose certificate was verified.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_artifacts::ArtifactStore;
use gpuaas_channel::{ArtifactBody, ChannelBackend, FetchError, Refused};
use gpuaas_engine::{Engine, commands::node};
use gpuaas_model::{Code, Coded, Connectivity, NodeId, NodeState, SecretId};
use gpuaas_store::{NodeRecord, StoreError};
use gpuaas_trust::NodeIdentity;
use gpuaas_wire::{session::Hello, task::UnitReport};
use tokio_util::io::StreamReader;
use zeroize::Zeroizing;

pub(crate) struct Backend {
    pub(crate) engine: Arc<Engine>,
    pub(crate) artifacts: ArtifactStore,
}

impl Backend {
    async fn node(&self, id: NodeId) -> Result<NodeRecord, StoreError> {
        self.engine.store().read().await?.node(id).await
    }
}

#[async_trait]
impl ChannelBackend for Backend {
    async fn admit(&self, identity: &NodeIdentity) -> Result<(), Refused> {
        let refuse = |message: &str| Refused { code: Code::Forbidden, message: message.to_owned() };
        if identity.control_plane != self.engine.keys().control_plane() {
            return Err(refuse("this identity was given by another control plane"));
        }
        let node = match self.node(identity.node).await {
            Ok(node) => node,
            Err(StoreError::NotFound { .. }) => return Err(refuse("this node is not known")),
            Err(error) => {
                tracing::error!(%error, "a node could not be looked up");
                return Err(Refused { code: Code::Unavailable, message: "try again".to_owned() });
            }
        };
        if node.epoch != identity.epoch {
            return Err(refuse("this identity is of an earlier enrollment"));
        }
        match node.state {
            NodeState::Enrolled | NodeState::Active | NodeState::InMaintenance => Ok(()),
            NodeState::Registered | NodeState::NeedsReimage | NodeState::Retired => {
                Err(refuse("this node may not connect in its present state"))
            }
        }
    }

    async fn connected(&self, id: NodeId, hello: &Hello) {
        if let Err(error) = node::connected(&self.engine, id, hello).await {
            tracing::error!(node = %id, %error, "a hello could not be recorded");
        }
    }

    async fn connectivity_changed(&self, id: NodeId, connectivity: Connectivity) {
        if let Err(error) = node::connectivity_changed(&self.engine, id, connectivity).await {
            tracing::error!(node = %id, %error, "a change of connectivity could not be recorded");
        }
        if connectivity == Connectivity::Connected {
            // After the row: whoever is woken reads that the node is there.
            self.engine.node_connected(id);
        }
        if connectivity != Connectivity::Stale {
            let reachable = connectivity == Connectivity::Connected;
            if let Err(error) = self.engine.node_reachability_changed(id, reachable).await {
                tracing::error!(node = %id, %error, "members could not be marked");
            }
        }
    }

    async fn cloned(&self, id: NodeId, newer: &Hello) {
        if let Err(error) = node::cloned(&self.engine, id, newer).await {
            tracing::error!(node = %id, %error, "a clone could not be recorded");
        }
    }

    async fn unit_changed(&self, id: NodeId, report: UnitReport) {
        if let Err(error) = self.engine.unit_changed(id, &report).await {
            tracing::error!(node = %id, %error, "a unit's report could not be recorded");
        }
    }

    async fn key_set(&self) -> String {
        match self.engine.keys().signed_key_set() {
            Ok(set) => set.to_string(),
            Err(error) => {
                tracing::error!(%error, "the signing-key set could not be signed");
                String::new()
            }
        }
    }

    async fn observed_units(&self, id: NodeId) -> Vec<String> {
        self.engine.units_on(id).await.unwrap_or_else(|error| {
            tracing::error!(node = %id, %error, "could not tell which units to observe");
            Vec::new()
        })
    }

    async fn artifact(&self, id: NodeId, sha256: &str, offset: u64) -> Result<ArtifactBody, FetchError> {
        if !self.engine.names_artifact(id, sha256).await.map_err(fetch_error)? {
            return Err(FetchError::NotFound);
        }
        let found =
            self.artifacts.get(sha256, offset).await.map_err(|error| FetchError::Internal(error.to_string()))?;
        let (size_bytes, bytes) = found.ok_or(FetchError::NotFound)?;
        Ok(ArtifactBody { size_bytes, bytes: Box::new(StreamReader::new(bytes)) })
    }

    async fn read_secret(&self, id: NodeId, secret: SecretId) -> Result<Zeroizing<Vec<u8>>, FetchError> {
        self.engine.secret_for_node(id, secret).await.map_err(fetch_error)
    }

    async fn deposit_secret(&self, id: NodeId, secret: SecretId, bytes: Zeroizing<Vec<u8>>) -> Result<(), FetchError> {
        self.engine.deposit_for_node(id, secret, &bytes).await.map_err(fetch_error)
    }

    async fn renew(&self, identity: &NodeIdentity, presented: &[u8], csr: &str) -> Result<String, Refused> {
        let refuse = |message: String| Refused { code: Code::Forbidden, message };
        if !gpuaas_trust::same_key(presented, csr).map_err(|error| refuse(error.to_string()))? {
            return Err(refuse("a renewal keeps the key that the certificate has".to_owned()));
        }
        let renewed = node::renew(&self.engine, identity, csr).await;
        renewed.map_err(|error| Refused { code: error.code(), message: error.to_string() })
    }
}

fn fetch_error(error: StoreError) -> FetchError {
    match error {
        StoreError::NotFound { .. } => FetchError::NotFound,
        other => FetchError::Internal(other.to_string()),
    }
}
