//! Records of control plane processes, their leases, and the connections of nodes.

use gpuaas_model::{NodeId, ReplicaId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A lease with its fence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The name of the lease.
    pub name: String,
    /// The replica that holds it.
    pub holder: ReplicaId,
    /// Raised by every change of holder; never falls.
    pub fence: u64,
    /// When the lease expires.
    pub expires_at: Timestamp,
}

/// One process of this control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Unique id of the replica; new with every start.
    pub id: ReplicaId,
    /// The address for other replicas, `host:port`; absent if there can be no others.
    pub address: Option<String>,
    /// The address for nodes, `host:port`.
    pub channel: String,
    /// The URL of its API.
    pub api_url: String,
    /// The version of the program.
    pub version: String,
    /// When the process started.
    pub started_at: Timestamp,
    /// The ids of the sealing keys that it holds: the current one and, during a rotation, its successor.
    #[serde(default)]
    pub sealing_keys: Vec<String>,
    /// Whether its key file still holds a key that is no longer in use, because the file could not be replaced.
    #[serde(default)]
    pub is_key_file_old: bool,
}

/// A connection that carries a node channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The connected node.
    pub node: NodeId,
    /// Unique id of the connection; never reused.
    pub connection: Uuid,
    /// Identifies the process run of the agent. Two live runs with the same node identity indicate a cloned machine.
    pub instance: String,
    /// The replica that holds the connection.
    pub replica: ReplicaId,
    /// The holder's address for other replicas, `host:port`.
    pub address: Option<String>,
    /// When the connection was opened.
    pub since: Timestamp,
    /// The version of the key set that the agent holds: the one that it reported when connecting, or a later delivered
    /// one.
    #[serde(default)]
    pub key_set_version: u64,
    /// When a key set was last delivered over the connection; absent if none was.
    #[serde(default)]
    pub keys_given_at: Option<Timestamp>,
}
