//! The ports of the engine: time, randomness, spawning, and communication with nodes.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
pub use gpuaas_model::Runtime;
use gpuaas_model::{Clock, Entropy, Name, NodeId, TaskId};
use gpuaas_trust::SecretText;
use gpuaas_wire::session::TaskLine;

use crate::{effects::Tunnel, ownership::NodeAccess};

/// The sources of nondeterminism in one value, cloned into everything that needs one of them.
#[derive(Clone)]
pub struct Ports {
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Spawns futures and sleeps.
    pub runtime: Arc<dyn Runtime>,
}

/// A task could not be handed to its node. Its state is unknown until the node is asked again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// The node has no channel now.
    #[error("the node is not connected")]
    NotConnected,
    /// The channel ended while the task was under way.
    #[error("the channel ended: {0}")]
    Lost(String),
}

/// Opens streams to ports of nodes, at the node's own address.
#[async_trait]
pub trait NodeTunnels: Send + Sync {
    /// Opens a stream to an allowlisted `port` of the node. Works only in the enrollment that `access` names.
    async fn open(&self, access: &NodeAccess, port: u16) -> std::io::Result<Box<dyn Tunnel>>;
}

/// Communication with nodes, no matter which replica holds their channels.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Pushes a signed envelope and follows the task. Sending the same envelope again is harmless: the node answers from its ledger.
    /// Reaches the node only in the enrollment that `access` names.
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskLine, DispatchError>>, DispatchError>;

    /// Asks the node to end the task early; the outcome still arrives in the task's stream.
    async fn cancel(&self, node: NodeId, task: TaskId);

    /// Sets the units whose changes the node reports.
    async fn observe(&self, node: NodeId, units: Vec<String>);

    /// Sends a signed key set to the node. Returns `false` if the node refused it or is not connected to this replica.
    async fn send_keys(&self, node: NodeId, signed_set: &str) -> bool;

    /// Checks a changed node again: its connections to this replica end if it may no longer connect.
    fn recheck(&self, node: NodeId);

    /// Checks every node connected to this replica again, for when it is unknown which ones changed.
    fn recheck_all(&self);

    /// Starts the time limit after which the node counts as unreachable unless it connects.
    fn expect_reconnect(&self, node: NodeId);

    /// Sends the current endpoints to every node whose channel this replica holds.
    fn broadcast_endpoints(&self);

    /// Ends every channel that this replica holds. The nodes connect again, here or to another replica.
    fn close_channels(&self);
}

/// An order to reimage a node, with the credentials that the fresh machine needs.
#[derive(Debug)]
pub struct ReimageOrder {
    /// The node.
    pub node: NodeId,
    /// The node's name.
    pub name: Name,
    /// The enrollment string with which the reimaged machine enrolls.
    pub enrollment: SecretText,
    /// The value that the machine must present when it enrolls. Only the hook receives it.
    pub value: SecretText,
}

/// Passes nodes to the system that reimages machines; this is the first kind of proof of a reimage. A TPM quote would be another kind of
/// `ReimageEvidence`, checked where the value is checked.
#[async_trait]
pub trait ReimageHook: Send + Sync {
    /// Returns once the order was accepted, or an explanation of why it was not.
    async fn reimage(&self, order: ReimageOrder) -> Result<(), String>;
}

/// A file of archived history in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// SHA-256 digest, 64 hex digits.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// Stores and reads the files of archived history.
#[async_trait]
pub trait ArchiveFiles: Send + Sync {
    /// Compresses and stores lines. Once it returns they survive a power failure; identical lines are stored once. The error explains why
    /// they could not be stored.
    async fn store(&self, lines: Vec<u8>) -> Result<ArchiveFile, String>;

    /// Returns the lines of the file with this digest.
    async fn read(&self, sha256: &str) -> Result<Vec<u8>, ArchiveReadError>;
}

/// Why the file of an archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveReadError {
    /// There is no file with the digest.
    #[error("its file is missing")]
    Missing,
    /// What the archive names is not the file that was written.
    #[error("{0}")]
    Changed(String),
    /// Reading failed, which says nothing about the file: a later attempt may succeed.
    #[error("{0}")]
    Failed(String),
}
