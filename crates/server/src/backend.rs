//! Answers the node channel's requests from rows and engine, each about the one node whose certificate was verified.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_artifacts::ArtifactStore;
use gpuaas_channel::{Admission, ArtifactBody, ChannelBackend, FetchError, PresentedCertificate, Refused};
use gpuaas_engine::{
    Engine, EngineError, SignedSet,
    commands::{history, inspect, node},
};
use gpuaas_model::{Code, Coded, EnrolledNode, NodeId, NodeState, SecretId};
use gpuaas_store::{NodeRecord, StoreError};
use gpuaas_trust::{PermittedUse, permitted_use};
use gpuaas_wire::{
    session::{Hello, RenewRequest},
    task::UnitReport,
};
use tokio_util::io::StreamReader;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::recording::record_with_retries;

pub(crate) struct Backend {
    pub(crate) engine: Arc<Engine>,
    pub(crate) artifacts: ArtifactStore,
}

impl Backend {
    /// Returns the node's row. A certificate that only this control plane can have issued may prove that rows are missing: then it refuses
    /// the node and stops all changes.
    async fn node(&self, presented: &PresentedCertificate) -> Result<Result<NodeRecord, Refused>, StoreError> {
        let mut reader = self.engine.store().read().await?;
        let node = match reader.node(presented.identity.node).await {
            Ok(node) => Some(node),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let PresentedCertificate { identity, certificate } = presented;
        if let Some(lost) = history::rollback_evidence(&mut reader, identity, certificate, node.as_ref()).await? {
            drop(reader);
            self.engine.store().stop_changes(&lost.why, lost.issued_at).await?;
            return Ok(Err(Refused { code: Code::HistoryRolledBack, message: lost.why }));
        }
        Ok(node.ok_or_else(|| Refused { code: Code::Forbidden, message: "this node is unknown".to_owned() }))
    }
}

#[async_trait]
impl ChannelBackend for Backend {
    async fn admit(&self, presented: &PresentedCertificate) -> Result<Admission, Refused> {
        let refuse = |message: &str| Refused { code: Code::Forbidden, message: message.to_owned() };
        let identity = &presented.identity;
        let admission = match permitted_use(&presented.certificate, self.engine.ports().clock.now()) {
            Ok(PermittedUse::Current) => Admission::Full,
            Ok(PermittedUse::RenewalOnly) => Admission::RenewalOnly,
            Ok(PermittedUse::Void) => return Err(refuse("this certificate has expired for too long")),
            Err(error) => return Err(refuse(&error.to_string())),
        };
        if identity.control_plane != self.engine.keys().control_plane() {
            return Err(refuse("another control plane issued this identity"));
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
            NodeState::Enrolled | NodeState::Active => {
                if let Err(error) = node::record_certificate(&self.engine, &node, &presented.certificate).await {
                    tracing::warn!(node = %node.id, %error, "the issuer of a node's certificate was not recorded");
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
        let recorded = Box::pin(node::connected(&self.engine, enrolled, connection, hello)).await;
        if recorded.is_ok() {
            inspect::inspect_new(&self.engine, id);
        }
        recorded.map_err(|error| {
            tracing::error!(node = %id, %error, "a node's connection could not be recorded");
            Refused { code: error.code(), message: error.to_string() }
        })
    }

    async fn disconnected(&self, id: NodeId, connection: Uuid) -> bool {
        let record = || node::disconnected(&self.engine, id, connection);
        record_with_retries(self.engine.stopping(), "the end of a node's connection", record).await.unwrap_or(true)
    }

    async fn became_unreachable(&self, id: NodeId) {
        let record = || node::mark_unreachable(&self.engine, id);
        record_with_retries(self.engine.stopping(), "a node's absence", record).await;
    }

    async fn endpoints(&self) -> Vec<String> {
        let channels = async { node::channels(&self.engine, &mut self.engine.store().read().await?).await };
        channels.await.unwrap_or_else(|error| {
            tracing::error!(%error, "could not look up the endpoints of the node channel");
            vec![self.engine.endpoints().channel.clone()]
        })
    }

    async fn identity_cloned(&self, id: NodeId, newer: &Hello) {
        if let Err(error) = node::identity_cloned(&self.engine, id, newer).await {
            tracing::error!(node = %id, %error, "a clone could not be recorded");
        }
    }

    async fn units_changed(&self, node: EnrolledNode, reports: Vec<UnitReport>) -> bool {
        let recorded = self.engine.units_changed(node, &reports).await;
        recorded.inspect_err(|error| tracing::warn!(%node, %error, "units could not be recorded yet")).is_ok()
    }

    async fn drift_hinted(&self, node: EnrolledNode, unit: &str) -> bool {
        let taken = self.engine.drift_reported(node, unit).await;
        taken.inspect_err(|error| tracing::warn!(%node, unit, %error, "a hint of drift could not be taken yet")).is_ok()
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
            tracing::error!(node = %id, %error, "could not look up the units to observe");
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

    async fn renew(&self, presented: &PresentedCertificate, ask: &RenewRequest) -> Result<String, Refused> {
        let renewed = node::renew(&self.engine, &presented.identity, &presented.certificate, ask).await;
        renewed.map_err(|error| Refused { code: error.code(), message: error.to_string() })
    }
}

fn fetch_error(error: EngineError) -> FetchError {
    if error.is_not_found() { FetchError::NotFound } else { FetchError::Internal(error.to_string()) }
}
