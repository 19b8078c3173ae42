//! A workload as the planner and an app see it: rows, collected by the engine, without the bytes of secrets.

use std::collections::BTreeMap;

use gpuaas_model::{
    Fault, Health, Lifecycle, MemberId, MemberPlace, MemberState, Name, NodeId, ProjectId, SecretId, Timestamp,
    WorkloadId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A workload with its members, facts and secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadView {
    /// Id of the workload.
    pub id: WorkloadId,
    /// Project that owns it.
    pub project: ProjectId,
    /// Name, unique within the project.
    pub name: Name,
    /// Position in the lifecycle.
    pub lifecycle: Lifecycle,
    /// The tenant's settings, checked by the app.
    pub config: Value,
    /// Release that the workload runs.
    pub release: ReleaseView,
    /// Members, servers before agents, by ordinal.
    pub members: Vec<MemberView>,
    /// Facts from earlier steps, by the names that the app defines.
    pub facts: BTreeMap<String, Value>,
    /// Sealed secrets, by the names that the app defines.
    pub secrets: BTreeMap<String, SecretView>,
}

/// A member and its placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Id of the member.
    pub id: MemberId,
    /// Component and ordinal, for example `server-1` or `agent-2`.
    pub name: String,
    /// Key of its component, defined by the app.
    pub component_key: String,
    /// Number within the component, from 1; never reused.
    pub ordinal: u32,
    /// Where the member runs.
    pub place: MemberPlace,
    /// The machine at that place.
    pub machine: MachineView,
    /// State in the member's lifecycle.
    pub state: MemberState,
    /// Health, as it is shown: the worse one of what the platform observes and what the workload's controller reported.
    pub health: Health,
    /// The reason for the health while the member is in service; a failed member has the fault in its state.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Health, as the platform itself observes it. What protects a cluster is decided by this one: a controller must not lift it.
    pub own_health: Health,
    /// The reason for that health.
    #[serde(default)]
    pub own_fault: Option<Fault>,
    /// True once a task may have changed the node for this member.
    pub touched: bool,
}

/// The data of a member's machine that an app needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Name, which is also the name of its KubeNode.
    pub name: Name,
    /// Address at which its services listen; empty until an agent has reported one.
    pub address: String,
    /// How far its clock is ahead of the control plane's, as its agent reported; negative if it is behind.
    #[serde(default)]
    pub clock_skew_seconds: Option<i64>,
    /// Time since which its agent is unreachable or has never connected; `None` if it is connected, or lost its connection only a moment ago.
    #[serde(default)]
    pub unreachable_since: Option<Timestamp>,
}

/// The data of a node that a placement needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub name: Name,
    /// Address at which its services listen; empty until an agent has reported one.
    pub address: String,
}

/// A verified release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseView {
    /// Version of the release.
    pub version: String,
    /// Files of the release.
    pub artifacts: Vec<ArtifactView>,
}

/// A file of a release, identified by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactView {
    /// File name within the release.
    pub name: String,
    /// SHA-256, 64 hex digits.
    pub sha256: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// A sealed secret without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretView {
    /// Id of the secret.
    pub id: SecretId,
    /// SHA-256 of its bytes, 64 hex digits.
    pub sha256: String,
}

impl WorkloadView {
    /// Returns the member with that id.
    pub fn member(&self, id: MemberId) -> Option<&MemberView> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns the members of one component, by ordinal.
    pub fn component<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a MemberView> {
        self.members.iter().filter(move |member| member.component_key == key)
    }
}

impl MemberView {
    /// Returns true if the member does not serve its role as it should.
    pub fn is_unwell(&self) -> bool {
        matches!(self.state, MemberState::Failed { .. }) || matches!(self.health, Health::Degraded | Health::Failed)
    }

    /// Returns true if the platform itself observes that the member does not serve its role as it should.
    pub fn is_observed_unwell(&self) -> bool {
        matches!(self.state, MemberState::Failed { .. }) || matches!(self.own_health, Health::Degraded | Health::Failed)
    }

    /// Returns true if the member's node is unreachable, whatever its workload's controller reports.
    pub const fn has_unreachable_node(&self) -> bool {
        self.machine.unreachable_since.is_some()
    }

    /// Returns true if the member is part of the app: neither removed nor being removed.
    pub fn is_present(&self) -> bool {
        !matches!(self.state, MemberState::Removing { .. } | MemberState::Removed)
    }
}
