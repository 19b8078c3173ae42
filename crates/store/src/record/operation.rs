//! Operations, their steps and tasks.

use gpuaas_model::{
    AllocationId, CorrelationId, Fault, MemberId, NodeId, OperationId, OperationKind, OperationState, ProjectId,
    StepId, StepState, TaskId, TaskState, TaskType, Timestamp, WorkloadId,
};
use gpuaas_planner::StepSpec;
use gpuaas_wire::task::TaskOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One durable operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Which.
    pub id: OperationId,
    /// The workload.
    pub workload: WorkloadId,
    /// Whose.
    pub project: ProjectId,
    /// Of what kind.
    pub kind: OperationKind,
    /// Where it is in its life.
    pub state: OperationState,
    /// Who asked.
    pub requested_by: String,
    /// The correlation id of the request behind it.
    pub correlation: CorrelationId,
    /// The members it is about.
    pub targets: Vec<MemberId>,
    /// The workload's generation that it carries out.
    pub generation: u64,
    /// The operation it resumes or repairs.
    pub resumes: Option<OperationId>,
    /// Whether somebody asked for its end.
    pub cancel_requested: bool,
    /// Why, when it did not go well.
    pub fault: Option<Fault>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// One named step of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Which.
    pub id: StepId,
    /// The operation.
    pub operation: OperationId,
    /// Position in the plan, from 0.
    pub position: u32,
    /// What it does.
    pub spec: StepSpec,
    /// Where it is in its life.
    pub state: StepState,
    /// Attempts begun.
    pub attempts: u32,
    /// In backoff: not before.
    pub not_before: Option<Timestamp>,
    /// The present attempt's task, for node tasks.
    pub task: Option<TaskId>,
    /// What it is doing or waiting for.
    pub detail: Option<String>,
    /// Why, when it did not go well.
    pub fault: Option<Fault>,
    /// First attempt.
    pub started_at: Option<Timestamp>,
    /// Present attempt: when it is given up.
    pub deadline_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// One signed task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Which.
    pub id: TaskId,
    /// The node.
    pub node: NodeId,
    /// The node's enrollment epoch.
    pub epoch: u64,
    /// The project whose operation it serves; `None` for the platform's own.
    pub project: Option<ProjectId>,
    /// The allocation by which the project holds the node.
    #[serde(default)]
    pub allocation: Option<AllocationId>,
    /// The workload.
    pub workload: Option<WorkloadId>,
    /// The operation.
    pub operation: Option<OperationId>,
    /// The step.
    pub step: Option<StepId>,
    /// Which attempt of the step.
    pub attempt: u32,
    /// Its type.
    pub task_type: TaskType,
    /// The version of its parameters' shape.
    pub schema: u32,
    /// Its parameters.
    pub params: Value,
    /// Where it is in its life.
    pub state: TaskState,
    /// How it ended.
    pub outcome: Option<TaskOutcome>,
    /// Key id that signed it.
    pub key_id: String,
    /// SHA-256 of the envelope's payload, 64 hex digits.
    pub envelope_sha256: String,
    /// The whole signed envelope, so that a restart sends the very same one again.
    pub envelope: String,
    /// The fence it carries.
    pub fence: u64,
    /// The correlation id of the request behind it.
    pub correlation: CorrelationId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was sent.
    pub dispatched_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}
