//! Control-plane processes, what they hold, and who is connected to them.

use gpuaas_model::{NodeId, ReplicaId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A lease with its fence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Its name.
    pub name: String,
    /// Who holds it.
    pub holder: ReplicaId,
    /// Grows with every change of holder and never falls.
    pub fence: u64,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}

/// One of the processes that are this control plane together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Which; a fresh one with every start.
    pub id: ReplicaId,
    /// Where other replicas reach it, `host:port`; absent where there can be no others.
    pub address: Option<String>,
    /// Where nodes reach it, `host:port`.
    pub channel: String,
    /// Its API.
    pub api_url: String,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// The ids of the sealing keys that it holds: the one in use, and the one that is to follow.
    #[serde(default)]
    pub sealing_keys: Vec<String>,
    /// Whether its key file still holds a key that is in use no more, because the file could not be replaced.
    #[serde(default)]
    pub is_key_file_old: bool,
}

/// A connection that carries a node's channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The node.
    pub node: NodeId,
    /// The connection; never used again.
    pub connection: Uuid,
    /// The run of the agent at its other end: two live ones under one identity are a clone.
    pub instance: String,
    /// Who holds it.
    pub replica: ReplicaId,
    /// Where other replicas reach the holder, `host:port`.
    pub address: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// The version of the signing keys that the agent was given over it.
    #[serde(default)]
    pub key_set_version: u64,
    /// When they were given over it, if they were.
    #[serde(default)]
    pub keys_given_at: Option<Timestamp>,
}
