//! Records of operations, their steps and tasks.

use gpuaas_model::{
    AllocationId, CorrelationId, Fault, MemberId, NodeId, OperationId, OperationKind, OperationState, ProjectId,
    StepId, StepState, TaskId, TaskState, TaskType, Timestamp, WorkloadId,
};
use gpuaas_planner::{OperationRequest, Parameters, StepSpec};
use gpuaas_wire::task::TaskOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WorkloadRecord;

/// A durable operation on a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Unique id of the operation.
    pub id: OperationId,
    /// The workload that it changes.
    pub workload: WorkloadId,
    /// The project of the workload.
    pub project: ProjectId,
    /// The kind of operation.
    pub kind: OperationKind,
    /// The parameters of that kind, in the app's schema. Never secret.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// Lifecycle state of the operation.
    pub state: OperationState,
    /// The actor that requested the operation.
    pub requested_by: String,
    /// The correlation id of the request.
    pub correlation: CorrelationId,
    /// The members that it changes.
    pub targets: Vec<MemberId>,
    /// The generation of the workload that it applies.
    pub generation: u64,
    /// The operation that it resumes or repairs.
    pub resumes: Option<OperationId>,
    /// The later operation that took its place, if it is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<OperationId>,
    /// Whether cancellation was requested.
    pub cancel_requested: bool,
    /// Set if the platform itself requested the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_platform: Option<ByPlatform>,
    /// The reason of a failure.
    pub fault: Option<Fault>,
    /// When the operation was accepted.
    pub created_at: Timestamp,
    /// When the first step began.
    pub started_at: Option<Timestamp>,
    /// When the operation ended.
    pub ended_at: Option<Timestamp>,
}

/// The platform's own request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByPlatform {
    /// The differences for which the platform requested it, as one sentence.
    pub reason: String,
    /// Whether a person's request waits for the end of the operation: steps that run end by themselves, and no other one begins.
    #[serde(default)]
    pub yields: bool,
}

impl OperationRecord {
    /// Returns an operation on `workload`, without parameters and members, that was accepted at `at` and has not begun.
    pub fn queued(
        id: OperationId,
        workload: &WorkloadRecord,
        kind: OperationKind,
        (requested_by, correlation): (String, CorrelationId),
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            workload: workload.id,
            project: workload.project,
            kind,
            parameters: Parameters::new(),
            state: OperationState::Queued,
            requested_by,
            correlation,
            targets: Vec::new(),
            generation: workload.generation,
            resumes: None,
            superseded_by: None,
            cancel_requested: false,
            by_platform: None,
            fault: None,
            created_at: at,
            started_at: None,
            ended_at: None,
        }
    }

    /// Returns true if no further step begins: cancellation was requested, or a person's request waits.
    pub fn is_ending(&self) -> bool {
        self.cancel_requested || self.by_platform.as_ref().is_some_and(|own| own.yields)
    }

    /// Returns the kind with its parameters.
    pub fn request(&self) -> OperationRequest {
        OperationRequest { kind: self.kind, parameters: self.parameters.clone() }
    }
}

/// A step of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Unique id of the step.
    pub id: StepId,
    /// The operation that the step belongs to.
    pub operation: OperationId,
    /// Position in the plan, from 0.
    pub position: u32,
    /// The step as it was planned.
    #[serde(with = "super::step")]
    pub spec: StepSpec,
    /// Lifecycle state of the step.
    pub state: StepState,
    /// Number of attempts begun.
    pub attempts: u32,
    /// Number of those that were interrupted.
    #[serde(default)]
    pub interruptions: u32,
    /// The earliest start of the next attempt, during backoff.
    pub not_before: Option<Timestamp>,
    /// The task of the current attempt, for steps that run on a node.
    pub task: Option<TaskId>,
    /// The current activity, or the condition that the step waits for.
    pub detail: Option<String>,
    /// The reason of a failure.
    pub fault: Option<Fault>,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When the current attempt times out.
    pub deadline_at: Option<Timestamp>,
    /// When the step ended.
    pub ended_at: Option<Timestamp>,
}

impl StepRecord {
    /// Returns a step that has not begun.
    pub fn pending(id: StepId, operation: OperationId, position: u32, spec: StepSpec) -> Self {
        Self {
            id,
            operation,
            position,
            spec,
            state: StepState::Pending,
            attempts: 0,
            interruptions: 0,
            not_before: None,
            task: None,
            detail: None,
            fault: None,
            started_at: None,
            deadline_at: None,
            ended_at: None,
        }
    }
}

/// A signed task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Unique id of the task.
    pub id: TaskId,
    /// The node that executes it.
    pub node: NodeId,
    /// The node's enrollment epoch.
    pub epoch: u64,
    /// The project whose operation it serves; `None` for tasks of the platform.
    pub project: Option<ProjectId>,
    /// The allocation by which the project holds the node.
    #[serde(default)]
    pub allocation: Option<AllocationId>,
    /// The workload that it serves.
    pub workload: Option<WorkloadId>,
    /// The operation that it serves.
    pub operation: Option<OperationId>,
    /// The step that it executes.
    pub step: Option<StepId>,
    /// The number of the step's attempt.
    pub attempt: u32,
    /// The type of the task.
    pub task_type: TaskType,
    /// The schema version of the parameters.
    pub schema: u32,
    /// The parameters, as defined by the task type.
    pub params: Value,
    /// Lifecycle state of the task.
    pub state: TaskState,
    /// The reported outcome.
    pub outcome: Option<TaskOutcome>,
    /// The id of the key that signed the envelope.
    pub key_id: String,
    /// SHA-256 of the envelope's payload, 64 hex digits.
    pub envelope_sha256: String,
    /// The signed envelope, kept so that a restart sends the same bytes again.
    pub envelope: String,
    /// The fence in the envelope.
    pub fence: u64,
    /// The correlation id of the request that caused the task.
    pub correlation: CorrelationId,
    /// When the task was created.
    pub created_at: Timestamp,
    /// When the task was dispatched; equal to `created_at`, and unchanged when the envelope is sent again.
    pub dispatched_at: Option<Timestamp>,
    /// When the task ended.
    pub ended_at: Option<Timestamp>,
    /// The deadline in the envelope, after which the agent refuses the task.
    pub expires_at: Timestamp,
}
