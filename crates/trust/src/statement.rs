//! The signed contents of a task. The signature covers everything that could be confused.

use gpuaas_model::{AllocationId, CorrelationId, NodeId, OperationId, StepId, TaskId, Timestamp, WorkloadId};
use serde::{Deserialize, Serialize};

/// One task for one node, to be executed once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStatement {
    /// Id of the control plane that issued the task.
    pub control_plane: String,
    /// Id of the node that must run the task.
    pub node: NodeId,
    /// Enrollment epoch of the node.
    pub epoch: u64,
    /// Allocation of the node to the project that the task serves. Absent from the JSON of platform tasks, so that agents without this
    /// field accept them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// Workload that the task serves, if any.
    pub workload: Option<WorkloadId>,
    /// Operation that the task serves, if any.
    pub operation: Option<OperationId>,
    /// Step that the task serves, if any.
    pub step: Option<StepId>,
    /// Attempt of the step, counted from 1.
    pub attempt: u32,
    /// Id of the task, under which the node's ledger records it.
    pub task: TaskId,
    /// Name of the task type in the catalog.
    pub task_type: String,
    /// Schema version of the parameters.
    pub schema: u32,
    /// Parameters of the task type, as JSON.
    pub params: serde_json::Value,
    /// Time of signing.
    pub issued_at: Timestamp,
    /// Deadline of the task. The agent refuses an envelope that arrives later.
    pub expires_at: Timestamp,
    /// Fencing token. The agent refuses a lower value than one it has seen, so tasks of a paused former leader have no effect.
    pub fence: u64,
    /// Correlation id of the request that caused the task.
    pub correlation: CorrelationId,
}
