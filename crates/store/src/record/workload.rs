//! Workloads, their members, and what they keep.

use std::collections::BTreeMap;

use gpuaas_model::{
    AccessGrantId, AllocationId, Fault, Health, Lifecycle, MemberId, MemberState, Name, NodeId, OperationId, Progress,
    ProjectId, Recovery, SecretId, Timestamp, WorkloadId,
};
use gpuaas_planner::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A deployed app: desired and observed side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// Which.
    pub id: WorkloadId,
    /// Whose.
    pub project: ProjectId,
    /// Its name.
    pub name: Name,
    /// The app's slug.
    pub app: String,
    /// The version.
    pub version: String,
    /// The placement intent as it was accepted.
    pub intent: Value,
    /// The tenant's settings.
    pub config: Value,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// The app's phase.
    pub phase: String,
    /// Steps of its newest operation.
    pub progress: Progress,
    /// How it is.
    pub health: Health,
    /// What can be done.
    pub recovery: Recovery,
    /// Of the workload as a whole; members carry their own.
    pub fault: Option<Fault>,
    /// Where clients reach it.
    pub endpoint: Option<String>,
    /// What was learnt or told.
    pub facts: BTreeMap<String, Value>,
    /// Grows with every accepted change of what is desired.
    pub generation: u64,
    /// The generation that was last carried out whole.
    pub observed_generation: u64,
    /// Grows with every change of this row; compare-and-swap.
    pub revision: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
}

impl WorkloadRecord {
    /// Its status fields, as the planner takes them.
    pub fn status(&self) -> Status {
        Status {
            lifecycle: self.lifecycle,
            phase: self.phase.clone(),
            health: self.health,
            recovery: self.recovery,
            progress: self.progress,
        }
    }

    /// Takes its status fields from the planner.
    pub fn set_status(&mut self, status: &Status) {
        self.lifecycle = status.lifecycle;
        self.phase.clone_from(&status.phase);
        self.health = status.health;
        self.recovery = status.recovery;
        self.progress = status.progress;
    }
}

/// A workload's part on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Which.
    pub id: MemberId,
    /// The workload.
    pub workload: WorkloadId,
    /// The app's own word for its part.
    pub component_key: String,
    /// Counts from 1 within the component.
    pub ordinal: u32,
    /// Its allocation.
    pub allocation: AllocationId,
    /// The node.
    pub node: NodeId,
    /// Where it is in its life.
    pub state: MemberState,
    /// How it is.
    pub health: Health,
    /// Why its health is what it is, where the state does not say.
    pub fault: Option<Fault>,
    /// Where clients reach it.
    pub endpoint: Option<String>,
    /// Whether its software was begun to be laid out: what its node then holds is its own, not an earlier installation's.
    #[serde(default)]
    pub touched: bool,
    /// The last operation that touched it.
    pub last_operation: Option<OperationId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
}

impl MemberRecord {
    /// `server-1`, `agent-2`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.component_key, self.ordinal)
    }
}

/// A sealed secret; its bytes are opened outside of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// Which.
    pub id: SecretId,
    /// The workload.
    pub workload: Option<WorkloadId>,
    /// The app's own name for it.
    pub name: String,
    /// Sealed bytes.
    pub sealed: Vec<u8>,
    /// SHA-256 of the plain bytes, 64 hex digits.
    pub sha256: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A delivered access to a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessGrantRecord {
    /// Which.
    pub id: AccessGrantId,
    /// The workload.
    pub workload: WorkloadId,
    /// `direct` or `break-glass`.
    pub kind: String,
    /// What it may do.
    pub role: String,
    /// Who asked.
    pub requested_by: String,
    /// Why it was asked for.
    pub reason: Option<String>,
    /// The ServiceAccount made for it.
    pub service_account: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// When it was withdrawn.
    pub revoked_at: Option<Timestamp>,
}
