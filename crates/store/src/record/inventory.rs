//! Records of inventory: projects, nodes, enrollments, allocations and the artifacts of releases.

use std::collections::BTreeMap;

use gpuaas_model::{
    AllocationId, AllocationState, ArtifactId, Code, Connectivity, EnrollmentId, Name, NodeId, NodeState, OperationId,
    ProjectId, Timestamp, VerifiedBy,
};
use gpuaas_wire::task::{Finding, HostFacts, MachineFacts, TaskSupport};
use serde::{Deserialize, Serialize};

/// A tenant's project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Unique id of the project.
    pub id: ProjectId,
    /// The project's name.
    pub name: Name,
    /// When the project was created.
    pub created_at: Timestamp,
    /// When the project was deleted; its history keeps referring to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// A machine that is registered with the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Unique id of the node.
    pub id: NodeId,
    /// The node's name.
    pub name: Name,
    /// The region in which the machine is located.
    pub region: Option<String>,
    /// Labels set by operators.
    pub labels: BTreeMap<String, String>,
    /// Lifecycle state of the node.
    pub state: NodeState,
    /// Raised by every enrollment; certificates and envelopes of an earlier epoch are refused.
    pub epoch: u64,
    /// Whether the node is reachable.
    pub connectivity: Connectivity,
    /// When `connectivity` last changed.
    pub connectivity_since: Timestamp,
    /// How far the node's clock was ahead at its last connection, in seconds; negative if it was behind.
    #[serde(default)]
    pub clock_skew_seconds: Option<i64>,
    /// The version of the node's agent.
    pub agent_version: Option<String>,
    /// Why the agent accepts no tasks, as of its newest connection; absent if it accepts them.
    #[serde(default)]
    pub agent_problem: Option<NodeProblem>,
    /// The ledger of its agent, as of its newest connection with a usable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<NodeLedger>,
    /// The machine's id.
    pub machine_id: Option<String>,
    /// The task types that the agent supports.
    pub support: Vec<TaskSupport>,
    /// The machine as the last tenant left it; absent once it has been enrolled again.
    #[serde(default)]
    pub left_by_tenant: Option<ReturnedMachine>,
    /// The last time that the node was found on another machine.
    #[serde(default)]
    pub machine_changed: Option<MachineChange>,
    /// Facts about the host from its newest inspection.
    pub facts: Option<HostFacts>,
    /// The machine's hardware from its newest inspection.
    #[serde(default)]
    pub machine: Option<MachineFacts>,
    /// The result of the newest preflight, and earlier findings of checks that it did not run.
    pub preflight: Option<NodePreflight>,
    /// When the node was last inspected; absent if the next inspection is due.
    #[serde(default)]
    pub inspected_at: Option<Timestamp>,
    /// The id of the authority that issued the node's certificate; absent for certificates from before authorities
    /// could be rotated.
    #[serde(default)]
    pub certified_by: Option<String>,
    /// When the node was registered.
    pub created_at: Timestamp,
    /// When the node was deleted; its history keeps referring to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Raised by every change of this row; used for compare-and-swap.
    pub generation: u64,
}

/// What is known of a node's fitness for an app.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePreflight {
    /// Number of checks that passed in the newest preflight.
    pub passed: u32,
    /// Checks that did not pass, blocking ones first.
    pub findings: Vec<NodeFinding>,
}

/// A finding, with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFinding {
    /// The finding as the node reported it.
    #[serde(flatten)]
    pub finding: Finding,
    /// When and by what it was found; absent in rows of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
}

/// When and by what a finding was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// When the report arrived.
    pub at: Timestamp,
    /// The operation whose preflight found it, with the name of its workload; absent for an inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<(OperationId, Name)>,
}

/// A machine that a tenant has returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnedMachine {
    /// When the node was taken back.
    pub at: Timestamp,
    /// The last id that the machine reported.
    pub machine_id: Option<String>,
}

/// What a node's agent says about its ledger when it connects. Nothing proves it: a tenant has root on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLedger {
    /// The ledger's id.
    pub id: String,
    /// Number of task starts and ends ever written to it.
    pub written: u64,
    /// The highest fence in it.
    pub fence: u64,
}

/// The reason why a node's agent accepts no tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProblem {
    /// Stable code of the problem.
    pub code: Code,
    /// The agent's description of the problem.
    pub detail: String,
    /// When the control plane first saw the problem.
    pub since: Timestamp,
}

/// The record that a node connected from another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineChange {
    /// When the change was detected.
    pub at: Timestamp,
    /// The id of the previous machine.
    pub before: String,
}

impl NodeRecord {
    /// Clears the facts about the machine and its agent, but keeps the machine's id to compare the next machine with
    /// it.
    pub fn clear_machine_facts(&mut self) {
        (self.agent_problem, self.ledger) = (None, None);
        (self.facts, self.machine, self.preflight, self.inspected_at) = (None, None, None, None);
    }

    /// Returns the address on which the node's services listen; empty until an agent has reported one.
    pub fn address(&self) -> &str {
        self.facts.as_ref().and_then(|facts| facts.addresses.first()).map_or("", String::as_str)
    }
}

/// An enrollment token of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnrollmentRecord {
    /// Unique id of the enrollment.
    pub id: EnrollmentId,
    /// The node that it enrolls.
    pub node: NodeId,
    /// SHA-256 of the token, 64 hex digits.
    pub sha256: String,
    /// When the token was issued.
    pub created_at: Timestamp,
    /// When the token expires.
    pub expires_at: Timestamp,
    /// When the token was redeemed.
    pub used_at: Option<Timestamp>,
    /// Whether an operator forced the enrollment of the machine in its current state.
    pub is_forced: bool,
    /// SHA-256 of the value that proves that the machine was reimaged, 64 hex digits; absent if no such value was
    /// issued.
    pub reimage_sha256: Option<String>,
    /// The id of the authority that the enrollment string pins; absent for tokens from before authorities could be
    /// rotated.
    #[serde(default)]
    pub pinned: Option<String>,
}

/// A key for which a node certificate was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKeyRecord {
    /// SHA-256 of the public key, 64 hex digits.
    pub sha256: String,
    /// The node that the certificate identifies.
    pub node: NodeId,
    /// The node's enrollment epoch.
    pub epoch: u64,
    /// When the certificate was issued.
    pub created_at: Timestamp,
}

/// A project's right to use a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationRecord {
    /// Unique id of the allocation.
    pub id: AllocationId,
    /// The project that holds the node.
    pub project: ProjectId,
    /// The allocated node.
    pub node: NodeId,
    /// Lifecycle state of the allocation.
    pub state: AllocationState,
    /// The reason for the state `failed` or `release_failed`.
    pub detail: Option<String>,
    /// When the allocation was created.
    pub created_at: Timestamp,
    /// Raised by every change of this row; used for compare-and-swap.
    pub generation: u64,
}

/// A file of an imported release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// Unique id of the artifact.
    pub id: ArtifactId,
    /// The slug of the app.
    pub app: String,
    /// The version of the release.
    pub version: String,
    /// The file name within the release.
    pub name: String,
    /// SHA-256 of the file, 64 hex digits.
    pub sha256: String,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// The source of the import, as the importer named it.
    pub source: String,
    /// Whether the release declares itself a stand-in.
    pub stand_in: bool,
    /// How the release was verified; absent if an older version imported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<VerifiedBy>,
    /// When the artifact was imported.
    pub imported_at: Timestamp,
}
