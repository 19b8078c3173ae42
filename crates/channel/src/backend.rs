//! The channel's port to the control plane behind it.

use async_trait::async_trait;
use gpuaas_model::{Code, EnrolledNode, NodeId, SecretId};
use gpuaas_trust::NodeIdentity;
use gpuaas_wire::{
    session::{Hello, RenewRequest},
    task::UnitReport,
};
use tokio::io::AsyncRead;
use uuid::Uuid;

/// The certificate of a connection. The handshake has verified its chain and key, but not its validity period and epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// The identity that the certificate names.
    pub identity: NodeIdentity,
    /// The certificate in DER.
    pub certificate: Vec<u8>,
}

/// The purposes for which an admitted connection may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Every purpose.
    Full,
    /// Only certificate renewal: the certificate has expired.
    RenewalOnly,
}

/// Why the control plane refuses a connection or request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Stable error code.
    pub code: Code,
    /// One sentence, which is sent to the node.
    pub message: String,
}

/// Why a node's fetch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The object does not exist or is not for this node; the node cannot tell the two apart.
    NotFound,
    /// Any other failure. The text is logged and not sent to the node.
    Internal(String),
}

/// An artifact from a requested offset to its end.
pub struct ArtifactBody {
    /// Length of the whole artifact, in bytes.
    pub size_bytes: u64,
    /// The bytes from the offset to the end.
    pub bytes: Box<dyn AsyncRead + Send + Unpin>,
}

/// Decides about nodes and records their state. A node's method takes the node whose certificate was verified, so that a node can change
/// only its own state.
#[async_trait]
pub trait ChannelBackend: Send + Sync {
    /// Decides whether this identity may connect: known, not revoked, of the present enrollment. Called at the start of every connection,
    /// for every fetch request, and for all open connections of a node that has changed. [`Code::Unavailable`] means that it cannot be
    /// decided now.
    async fn admit(&self, presented: &PresentedCertificate) -> Result<Admission, Refused>;

    /// Records that the node's control connection is open and that it accepts tasks. Refuses when that cannot be recorded.
    async fn connected(&self, node: EnrolledNode, connection: Uuid, hello: &Hello) -> Result<(), Refused>;

    /// Records the end of a control connection, even if [`ChannelBackend::connected`] failed for it partway. Returns once that is recorded:
    /// true if the node has no other control connection.
    async fn disconnected(&self, node: NodeId, connection: Uuid) -> bool;

    /// Records that a disconnected node did not reconnect to this replica in time; it may have reconnected to another. Returns once that is
    /// recorded.
    async fn became_unreachable(&self, node: NodeId);

    /// Returns the addresses of all replicas' channels, `host:port`.
    async fn endpoints(&self) -> Vec<String>;

    /// Records that two live agents use one identity and that the newer one was refused.
    async fn identity_cloned(&self, node: NodeId, newer: &Hello);

    /// Records the newest reports of the listed units; other units are unchanged. Awaited before the next call for the same request of
    /// reports; dropped if the connection ends or a newer request replaces that one. False if it cannot be recorded now: then the reports
    /// are delivered again, unless there are newer ones.
    async fn units_changed(&self, node: EnrolledNode, reports: Vec<UnitReport>) -> bool;

    /// Takes the hint that files or the enablement of this unit may have changed on the node since the last check; the hint does not say what.
    /// The rate is limited per unit. False if it cannot be taken now: then it is delivered again.
    async fn drift_hinted(&self, node: EnrolledNode, unit: &str) -> bool;

    /// Returns the signed key set that nodes get when they connect: its version and its JSON.
    async fn key_set(&self) -> (u64, String);

    /// Returns the names of the units that the node should report.
    async fn observed_units(&self, node: NodeId) -> Vec<String>;

    /// Opens an artifact of one of the node's own tasks, at byte `offset`.
    async fn artifact(&self, node: EnrolledNode, sha256: &str, offset: u64) -> Result<ArtifactBody, FetchError>;

    /// Reads a secret of one of the node's own tasks.
    async fn read_secret(
        &self,
        node: EnrolledNode,
        secret: SecretId,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, FetchError>;

    /// Stores a secret that one of the node's own tasks must deposit.
    async fn deposit_secret(
        &self,
        node: EnrolledNode,
        secret: SecretId,
        bytes: zeroize::Zeroizing<Vec<u8>>,
    ) -> Result<(), FetchError>;

    /// Issues a new certificate, in PEM, for a new key.
    async fn renew(&self, presented: &PresentedCertificate, request: &RenewRequest) -> Result<String, Refused>;
}
