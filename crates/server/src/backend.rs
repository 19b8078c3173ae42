//! Answers the node channel's requests from rows and engine, each about the one node whose certificate was verified.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_artifacts::ArtifactStore;
use gpuaas_channel::{Admission, ArtifactBody, ChannelBackend, FetchError, Holder, Presented, Refused};
use gpuaas_engine::{
    Engine, SignedSet,
    commands::{history, inspect, node},
};
use gpuaas_model::{Code, Coded, EnrolledNode, NodeId, NodeState, SecretId};
use gpuaas_store::{NodeRecord, StoreError};
use gpuaas_trust::{Standing, standing};
use gpuaas_wire::{
    session::{Hello, RenewRequest},
    task::UnitReport,
};
use tokio_util::io::StreamReader;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::recording::until_recorded;

pub(crate) struct Backend {
    pub(crate) engine: Arc<Engine>,
    pub(crate) artifacts: ArtifactStore,
}

impl Backend {
    /// Returns the node's row. A certificate that only this control plane can have issued may prove that rows are missing: then it refuses
    /// the node and stops all changes.
    async fn node(&self, presented: &Presented) -> Result<Result<NodeRecord, Refused>, StoreError> {
        let mut reader = self.engine.store().read().await?;
        let node = match reader.node(presented.identity.node).await {
            Ok(node) => Some(node),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let Presented { identity, certificate } = presented;
        if let Some(forgotten) = history::forgotten(&mut reader, identity, certificate, node.as_ref()).await? {
            drop(reader);
            self.engine.store().stop_history(&forgotten.why, forgotten.issued_at).await?;
            return Ok(Err(Refused { code: Code::HistoryWentBack, message: forgotten.why }));
        }
        Ok(node.ok_or_else(|| Refused { code: Code::Forbidden, message: "this node is not known".to_owned() }))
    }
}

#[async_trait]
impl ChannelBackend for Backend {
    async fn admit(&self, presented: &Presented) -> Result<Admission, Refused> {
        let refuse = |message: &str| Refused { code: Code::Forbidden, message: message.to_owned() };
        let identity = &presented.identity;
        let admission = match standing(&presented.certificate, self.engine.ports().clock.now()) {
            Ok(Standing::Current) => Admission::Full,
            Ok(Standing::RenewalOnly) => Admission::RenewalOnly,
            Ok(Standing::Void) => return Err(refuse("this certificate has expired for too long")),
            Err(error) => return Err(refuse(&error.to_string())),
        };
        if identity.control_plane != self.engine.keys().control_plane() {
            return Err(refuse("this identity was given by another control plane"));
        }
        let node = match self.node(presented).await {
            Ok(node) => node?,
            Err(error) => {
                tracing::error!(%error, "a node could not be looked up");
                return Err(Refused { code: Code::Unavailable, message: "try again".to_owned() });
            }
        };
        if node.epoch != identity.epoch {
            return Err(refuse("this identity is of an earlier enrollment"));
        }
        match node.state {
            NodeState::Enrolled | NodeState::Active | NodeState::InMaintenance => {
                if let Err(error) = node::showed_certificate(&self.engine, &node, &presented.certificate).await {
                    tracing::warn!(node = %node.id, %error, "it could not be recorded which authority certified a node");
                }
                Ok(admission)
            }
            NodeState::Registered | NodeState::NeedsReimage | NodeState::Retired => {
                Err(refuse("this node may not connect in its present state"))
            }
        }
    }

    async fn connected(&self, enrolled: EnrolledNode, connection: Uuid, hello: &Hello) -> Result<(), Refused> {
        let id = enrolled.node;
        let recorded = node::connected(&self.engine, enrolled, connection, hello).await;
        if recorded.is_ok() {
            inspect::of_new(&self.engine, id);
        }
        recorded.map_err(|error| {
            tracing::error!(node = %id, %error, "a node's connection could not be recorded");
            Refused { code: error.code(), message: error.to_string() }
        })
    }

    async fn disconnected(&self, id: NodeId, connection: Uuid) -> bool {
        let record = || node::disconnected(&self.engine, id, connection);
        until_recorded(self.engine.stopping(), "the end of a node's connection", record).await.unwrap_or(true)
    }

    async fn did_not_return(&self, id: NodeId) {
        let record = || node::did_not_return(&self.engine, id);
        until_recorded(self.engine.stopping(), "a node's absence", record).await;
    }

    async fn holder(&self, id: NodeId) -> Option<Holder> {
        let session = async { self.engine.store().read().await?.session(id).await };
        let session = session.await.unwrap_or_else(|error| {
            tracing::error!(node = %id, %error, "could not tell who holds a node's channel");
            None
        })?;
        let elsewhere = session.replica != self.engine.replica();
        let address = session.address.filter(|_| elsewhere)?;
        Some(Holder { replica: session.replica, address, instance: session.instance })
    }

    async fn endpoints(&self) -> Vec<String> {
        let channels = async { node::channels(&self.engine, &mut self.engine.store().read().await?).await };
        channels.await.unwrap_or_else(|error| {
            tracing::error!(%error, "could not tell where nodes may connect");
            vec![self.engine.endpoints().channel.clone()]
        })
    }

    async fn cloned(&self, id: NodeId, newer: &Hello) {
        if let Err(error) = node::cloned(&self.engine, id, newer).await {
            tracing::error!(node = %id, %error, "a clone could not be recorded");
        }
    }

    async fn units_changed(&self, node: EnrolledNode, reports: Vec<UnitReport>) -> bool {
        let recorded = self.engine.units_changed(node, &reports).await;
        recorded.inspect_err(|error| tracing::warn!(%node, %error, "units could not be recorded yet")).is_ok()
    }

    async fn key_set(&self) -> (u64, String) {
        let now = self.engine.ports().clock.now();
        let set = async { self.engine.keys().signed_set(&mut self.engine.store().read().await?, now).await };
        let set = set.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the signing-key set could not be signed");
            SignedSet::default()
        });
        (set.version, set.text)
    }

    async fn observed_units(&self, id: NodeId) -> Vec<String> {
        self.engine.units_on(id).await.unwrap_or_else(|error| {
            tracing::error!(node = %id, %error, "could not tell which units to observe");
            Vec::new()
        })
    }

    async fn artifact(&self, node: EnrolledNode, sha256: &str, offset: u64) -> Result<ArtifactBody, FetchError> {
        let access = self.engine.artifact_for_node(node, sha256).await.map_err(fetch_error)?;
        let found = self
            .artifacts
            .get(access.sha256(), offset)
            .await
            .map_err(|error| FetchError::Internal(error.to_string()))?;
        let (size_bytes, bytes) = found.ok_or(FetchError::NotFound)?;
        Ok(ArtifactBody { size_bytes, bytes: Box::new(StreamReader::new(bytes)) })
    }

    async fn read_secret(&self, node: EnrolledNode, secret: SecretId) -> Result<Zeroizing<Vec<u8>>, FetchError> {
        self.engine.secret_for_node(node, secret).await.map_err(fetch_error)
    }

    async fn deposit_secret(
        &self,
        node: EnrolledNode,
        secret: SecretId,
        bytes: Zeroizing<Vec<u8>>,
    ) -> Result<(), FetchError> {
        self.engine.deposit_for_node(node, secret, &bytes).await.map_err(fetch_error)
    }

    async fn renew(&self, presented: &Presented, ask: &RenewRequest) -> Result<String, Refused> {
        let renewed = node::renew(&self.engine, &presented.identity, &presented.certificate, ask).await;
        renewed.map_err(|error| Refused { code: error.code(), message: error.to_string() })
    }
}

fn fetch_error(error: StoreError) -> FetchError {
    match error {
        StoreError::NotFound { .. } => FetchError::NotFound,
        other => FetchError::Internal(other.to_string()),
    }
}
