//! What the engine needs of the world: time, randomness, spawning, and the way to a node.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
pub use gpuaas_model::Runtime;
use gpuaas_model::{Clock, Entropy, Name, NodeId, TaskId};
use gpuaas_trust::SecretText;
use gpuaas_wire::task::{TaskOutcome, TaskProgress};

use crate::{effects::Tunnel, ownership::NodeAccess};

/// The unrepeatable, bundled: cloned into everything that needs any of it.
#[derive(Clone)]
pub struct Ports {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Yields randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Runs futures.
    pub runtime: Arc<dyn Runtime>,
}

/// One thing a node says about a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskUpdate {
    /// It verified the envelope, wrote it to its ledger, and begins.
    Accepted,
    /// How far it is.
    Progress(TaskProgress),
    /// It ended. The last update of a stream.
    Ended(TaskOutcome),
    /// Its ledger holds the task without an end: the agent died in the middle. The last update of a stream.
    Interrupted,
}

/// Why a task could not be handed to its node; nothing is known of its fate unless the node is asked again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// There is no channel now.
    #[error("the node has no channel")]
    NotConnected,
    /// The channel ended while the task was under way.
    #[error("the channel ended: {0}")]
    Lost(String),
}

/// Opens streams to ports of nodes, at the node's own address.
#[async_trait]
pub trait NodeTunnels: Send + Sync {
    /// A stream to an allowlisted `port` of the node, in the enrollment of the access alone.
    async fn open(&self, access: &NodeAccess, port: u16) -> std::io::Result<Box<dyn Tunnel>>;
}

/// The way to the nodes, wherever their channels end.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Pushes a signed envelope and follows the task. Sending the same envelope again is harmless: the node answers from its ledger. It reaches the
    /// node in the enrollment of the access alone.
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskUpdate, DispatchError>>, DispatchError>;

    /// Asks the node to end the task early; its outcome still arrives by the stream.
    async fn cancel(&self, node: NodeId, task: TaskId);

    /// Sets which units the node reports changes of.
    async fn observe(&self, node: NodeId, units: Vec<String>);

    /// Gives the node a signed key set. False when it did not take it, or is not connected here.
    async fn give_keys(&self, node: NodeId, signed_set: &str) -> bool;

    /// Looks again at a node that has changed: its connections here end when it may no longer connect.
    fn readmit(&self, node: NodeId);

    /// The same for every node that is connected here, when nobody knows which have changed.
    fn readmit_all(&self);

    /// Counts a node as gone from now on, unless it connects.
    fn expect_back(&self, node: NodeId);

    /// Tells every node whose channel is held here where it may connect.
    async fn spread_endpoints(&self);

    /// Ends every channel that is held here: the nodes dial again, here or elsewhere.
    fn release_all(&self);
}

/// A node that is to be reimaged, with what its fresh machine needs.
#[derive(Debug)]
pub struct ReimageOrder {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: Name,
    /// The string that brings the machine in.
    pub enrollment: SecretText,
    /// The value that the machine has to show as it enrolls. The hook alone learns it.
    pub value: SecretText,
}

/// Hands nodes to whatever reimages machines: the first of the ways to prove a reimage. A TPM's quote would be checked where the value is, as
/// another kind of `ReimageEvidence`.
#[async_trait]
pub trait ReimageHook: Send + Sync {
    /// Returns once the order was taken; says why it was not.
    async fn reimage(&self, order: ReimageOrder) -> Result<(), String>;
}

/// A file of archived history in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Its SHA-256, 64 hex digits.
    pub sha256: String,
    /// Its length.
    pub size_bytes: u64,
}

/// Keeps the files of archived history.
#[async_trait]
pub trait ArchiveFiles: Send + Sync {
    /// Compresses and keeps lines. Once it returns they survive a power cut; the same lines are kept once. Says why they could not be kept.
    async fn keep(&self, lines: Vec<u8>) -> Result<ArchiveFile, String>;
}
