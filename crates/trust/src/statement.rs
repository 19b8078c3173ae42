//! What a signature on a task covers: everything that could be confused.

use gpuaas_model::{AllocationId, CorrelationId, NodeId, OperationId, StepId, TaskId, Timestamp, WorkloadId};
use serde::{Deserialize, Serialize};

/// One task for one node, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStatement {
    /// The control plane that orders it.
    pub control_plane: String,
    /// The node it is for.
    pub node: NodeId,
    /// The node's enrollment epoch.
    pub epoch: u64,
    /// The allocation by which a project holds the node, if the task serves a project. Absent from the JSON of others, so that agents of before this
    /// field existed take the platform's own tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// The workload it serves, if any.
    pub workload: Option<WorkloadId>,
    /// The operation it serves, if any.
    pub operation: Option<OperationId>,
    /// The step it serves, if any.
    pub step: Option<StepId>,
    /// Counts the step's attempts, from 1.
    pub attempt: u32,
    /// The task; the node's ledger knows it by this.
    pub task: TaskId,
    /// Its type's name in the catalog.
    pub task_type: String,
    /// The version of the parameters' shape.
    pub schema: u32,
    /// The parameters.
    pub params: serde_json::Value,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// By when it must have ended; an envelope that arrives later is refused.
    pub expires_at: Timestamp,
    /// Never lower than one that the node has seen: a paused old leader signs in vain.
    pub fence: u64,
    /// Finds all that belongs to the same request.
    pub correlation: CorrelationId,
}
