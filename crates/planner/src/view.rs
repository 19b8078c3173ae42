//! What the planner and an app see of a workload: rows, gathered by the engine, without secrets' bytes.

use std::collections::BTreeMap;

use gpuaas_model::{AllocationId, Health, MemberId, MemberState, Name, NodeId, ProjectId, SecretId, WorkloadId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A workload with its members and all that was learnt of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadView {
    /// Which.
    pub id: WorkloadId,
    /// Whose.
    pub project: ProjectId,
    /// Its name.
    pub name: Name,
    /// The tenant's settings, checked by the app.
    pub config: Value,
    /// The release it runs.
    pub release: ReleaseView,
    /// Its members, servers before agents, by ordinal.
    pub members: Vec<MemberView>,
    /// What was learnt in earlier steps, by the app's own names.
    pub facts: BTreeMap<String, Value>,
    /// Its sealed secrets, by the app's own names.
    pub secrets: BTreeMap<String, SecretView>,
}

/// A member and its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Which.
    pub id: MemberId,
    /// `server-1`, `agent-2`: component and ordinal.
    pub name: String,
    /// The app's own word for its part.
    pub component_key: String,
    /// Counts from 1 within the component; never used again.
    pub ordinal: u32,
    /// Its allocation.
    pub allocation: AllocationId,
    /// Its node.
    pub node: NodeView,
    /// Where it is in its life.
    pub state: MemberState,
    /// How it is.
    pub health: Health,
    /// Whether its software was begun to be laid out on the node.
    pub touched: bool,
}

/// A node as an app needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Which.
    pub id: NodeId,
    /// Its name, which becomes its KubeNode's.
    pub name: Name,
    /// The address its services listen on; empty while no agent has told.
    pub address: String,
}

/// A verified release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseView {
    /// Its version.
    pub version: String,
    /// Its files.
    pub artifacts: Vec<ArtifactView>,
}

/// A file of a release, by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactView {
    /// The release's own file name.
    pub name: String,
    /// SHA-256, 64 hex digits.
    pub sha256: String,
    /// Length.
    pub size_bytes: u64,
}

/// A sealed secret without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretView {
    /// Which.
    pub id: SecretId,
    /// SHA-256 of its bytes, 64 hex digits.
    pub sha256: String,
}

impl WorkloadView {
    /// The member of that id.
    pub fn member(&self, id: MemberId) -> Option<&MemberView> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The members of one component, by ordinal.
    pub fn component<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a MemberView> {
        self.members.iter().filter(move |member| member.component_key == key)
    }

    /// A learnt text.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).and_then(Value::as_str)
    }
}

impl MemberView {
    /// Whether it is part of the app now: not yet gone and not going.
    pub fn is_present(&self) -> bool {
        !matches!(self.state, MemberState::Removing { .. } | MemberState::Removed)
    }
}
