//! What the channel asks of the control plane behind it.

use async_trait::async_trait;
use gpuaas_model::{Code, EnrolledNode, NodeId, SecretId};
use gpuaas_trust::NodeIdentity;
use gpuaas_wire::{
    session::{Hello, RenewRequest},
    task::UnitReport,
};
use tokio::io::AsyncRead;
use uuid::Uuid;

use crate::peers::Holder;

/// The certificate of a connection whose chain and key the handshake has verified; its time and its epoch it has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// Whose it is.
    pub identity: NodeIdentity,
    /// The certificate itself, DER.
    pub certificate: Vec<u8>,
}

/// What a connection that is let in may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Everything.
    Full,
    /// Its certificate has expired: a new one for the same key, and nothing else.
    RenewalOnly,
}

/// A connection or request that the control plane turns away, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Stable code.
    pub code: Code,
    /// One sentence, told to the node.
    pub message: String,
}

/// Why a node does not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// It is not there, or not for this node: the two look the same.
    NotFound,
    /// Anything else; told to the log, not to the node.
    Internal(String),
}

/// An artifact from some offset to its end.
pub struct ArtifactBody {
    /// Length of the whole artifact.
    pub size_bytes: u64,
    /// The bytes from the offset on.
    pub bytes: Box<dyn AsyncRead + Send + Unpin>,
}

/// Decides and records. Every method is about the one node whose certificate was verified: a node's word changes only itself.
#[async_trait]
pub trait ChannelBackend: Send + Sync {
    /// Whether this identity may connect at all: known, not revoked, of the present enrollment. Asked at the beginning of every connection,
    /// for every request of a node, and of all that stand when their node has changed. [`Code::Unavailable`] means that nobody can tell now.
    async fn admit(&self, presented: &Presented) -> Result<Admission, Refused>;

    /// The node's control connection stands; it can be sent tasks from now on. Refused when that cannot be recorded.
    async fn connected(&self, node: EnrolledNode, connection: Uuid, hello: &Hello) -> Result<(), Refused>;

    /// A control connection has ended, also one of which [`ChannelBackend::connected`] could not record all. Returns when that is recorded: true
    /// when the node has no other by now.
    async fn disconnected(&self, node: NodeId, connection: Uuid) -> bool;

    /// A node that was disconnected did not come back here in time; elsewhere it may have. Returns when that is recorded.
    async fn did_not_return(&self, node: NodeId);

    /// Which other replica holds the node's channel, if one does.
    async fn holder(&self, node: NodeId) -> Option<Holder>;

    /// Where nodes may connect, `host:port`: every replica.
    async fn endpoints(&self) -> Vec<String>;

    /// Two live agents use one identity; the newer was refused.
    async fn cloned(&self, node: NodeId, newer: &Hello);

    /// The node's observed units are now like this, as far as they are listed. Not called again before it returns. False when that cannot be
    /// recorded now: then it is said again.
    async fn units_changed(&self, node: EnrolledNode, reports: Vec<UnitReport>) -> bool;

    /// The signed key set to hand out at connection: its version, and JSON.
    async fn key_set(&self) -> (u64, String);

    /// Which units the node should report.
    async fn observed_units(&self, node: NodeId) -> Vec<String>;

    /// An artifact of one of the node's own tasks.
    async fn artifact(&self, node: EnrolledNode, sha256: &str, offset: u64) -> Result<ArtifactBody, FetchError>;

    /// A secret of one of the node's own tasks.
    async fn read_secret(
        &self,
        node: EnrolledNode,
        secret: SecretId,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, FetchError>;

    /// Takes a secret that one of the node's own tasks was told to deposit.
    async fn deposit_secret(
        &self,
        node: EnrolledNode,
        secret: SecretId,
        bytes: zeroize::Zeroizing<Vec<u8>>,
    ) -> Result<(), FetchError>;

    /// A new certificate for a fresh key.
    async fn renew(&self, presented: &Presented, ask: &RenewRequest) -> Result<String, Refused>;
}
