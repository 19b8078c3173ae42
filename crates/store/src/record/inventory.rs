//! What there is to give: projects, machines, who holds them, and the releases that are laid out on them.

use std::collections::BTreeMap;

use gpuaas_model::{
    AllocationId, AllocationState, ArtifactId, Code, Connectivity, EnrollmentId, Name, NodeId, NodeState, ProjectId,
    Timestamp, VerifiedBy,
};
use gpuaas_wire::task::{HostFacts, MachineFacts, PreflightReport, TaskSupport};
use serde::{Deserialize, Serialize};

/// A tenant's project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Which.
    pub id: ProjectId,
    /// Its name.
    pub name: Name,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A machine of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Where it stands.
    pub region: Option<String>,
    /// What operators say of it.
    pub labels: BTreeMap<String, String>,
    /// Where it is in its life.
    pub state: NodeState,
    /// Grows with every enrollment; certificates and tasks of an earlier one are refused.
    pub epoch: u64,
    /// Whether it can be reached.
    pub connectivity: Connectivity,
    /// Since when.
    pub connectivity_since: Timestamp,
    /// How far its clock was ahead when it connected last; negative when it was behind.
    #[serde(default)]
    pub clock_skew_seconds: Option<i64>,
    /// Its agent's version.
    pub agent_version: Option<String>,
    /// Why its agent takes no tasks, as of its newest connection; absent where it takes them.
    #[serde(default)]
    pub agent_problem: Option<NodeProblem>,
    /// Its machine's id.
    pub machine_id: Option<String>,
    /// Task types of its agent.
    pub support: Vec<TaskSupport>,
    /// Its machine as the last tenant left it; absent once it has come back since.
    #[serde(default)]
    pub left_by_tenant: Option<LeftMachine>,
    /// When its machine was last found to be another one.
    #[serde(default)]
    pub machine_changed: Option<MachineChange>,
    /// What was learnt or told.
    pub facts: Option<HostFacts>,
    /// What its machine is made of, as its newest inspection told.
    #[serde(default)]
    pub machine: Option<MachineFacts>,
    /// What its newest preflight found.
    pub preflight: Option<PreflightReport>,
    /// When it was inspected last; absent when it is to be inspected anew.
    #[serde(default)]
    pub inspected_at: Option<Timestamp>,
    /// The id of the authority that issued its certificate; absent where that was before authorities could be rotated.
    #[serde(default)]
    pub certified_by: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Grows with every change of this row; compare-and-swap.
    pub generation: u64,
}

/// A machine that a tenant has left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftMachine {
    /// When the node was taken back.
    pub at: Timestamp,
    /// The id that the machine told last.
    pub machine_id: Option<String>,
}

/// Why a node's agent takes no tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProblem {
    /// Its stable code.
    pub code: Code,
    /// What the agent says of it.
    pub detail: String,
    /// Since when the control plane knows.
    pub since: Timestamp,
}

/// A node came back on another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineChange {
    /// When that was seen.
    pub at: Timestamp,
    /// The id that its machine had before.
    pub before: String,
}

impl NodeRecord {
    /// Forgets what was learned of the machine and its agent, but for the machine's id: the one that comes next is compared with it.
    pub fn forget_machine(&mut self) {
        self.agent_problem = None;
        (self.facts, self.machine, self.preflight, self.inspected_at) = (None, None, None, None);
    }

    /// The address that services of the node listen on; empty while no agent has told.
    pub fn address(&self) -> &str {
        self.facts.as_ref().and_then(|facts| facts.addresses.first()).map_or("", String::as_str)
    }
}

/// One enrollment token of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnrollmentRecord {
    /// Which.
    pub id: EnrollmentId,
    /// The node.
    pub node: NodeId,
    /// SHA-256 of the token, 64 hex digits.
    pub sha256: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// When it was redeemed.
    pub used_at: Option<Timestamp>,
    /// Whether an operator has forced the machine to be taken as it is.
    pub is_forced: bool,
    /// SHA-256 of the value that shows that the machine was reimaged, 64 hex digits; absent where none was made.
    pub reimage_sha256: Option<String>,
    /// The id of the authority that the string pins; absent where it was made before authorities could be rotated.
    #[serde(default)]
    pub pinned: Option<String>,
}

/// A key that a node's certificate was issued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKeyRecord {
    /// SHA-256 of the public key, 64 hex digits.
    pub sha256: String,
    /// The node.
    pub node: NodeId,
    /// The node's enrollment epoch.
    pub epoch: u64,
    /// When it was certified.
    pub created_at: Timestamp,
}

/// A project's hold on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationRecord {
    /// Which.
    pub id: AllocationId,
    /// Whose.
    pub project: ProjectId,
    /// The node.
    pub node: NodeId,
    /// Where it is in its life.
    pub state: AllocationState,
    /// Why it is `failed` or `release_failed`.
    pub detail: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Grows with every change; compare-and-swap.
    pub generation: u64,
}

/// A file of an imported release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// Which.
    pub id: ArtifactId,
    /// The app's slug.
    pub app: String,
    /// The version.
    pub version: String,
    /// The release's own file name.
    pub name: String,
    /// SHA-256 of the bytes, 64 hex digits.
    pub sha256: String,
    /// Length of the bytes.
    pub size_bytes: u64,
    /// Where it was imported from, as the importer named it.
    pub source: String,
    /// Whether the release says of itself that it is a stand-in.
    pub stand_in: bool,
    /// What verified its release; absent where an older version imported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<VerifiedBy>,
    /// When it was imported.
    pub imported_at: Timestamp,
}
