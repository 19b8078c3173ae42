//! What the store gives and takes: one record per object. How they lie in tables is nobody else's business.

mod credential;

pub use credential::{ServiceAccountRecord, SigningKeyRecord, TokenRecord};

use std::collections::BTreeMap;

use gpuaas_model::{
    AccessGrantId, ActorType, AllocationId, AllocationState, ArtifactId, AuditAction, AuditResult, Connectivity,
    CorrelationId, EnrollmentId, EventKind, Fault, Health, Lifecycle, MemberId, MemberState, Name, NodeId, NodeState,
    OperationId, OperationKind, OperationState, Progress, ProjectId, Recovery, ReplicaId, SecretId, StepId, StepState,
    StreamName, TaskId, TaskState, TaskType, Timestamp, TokenId, WorkloadId,
};
use gpuaas_planner::{StepSpec, status::Status};
use gpuaas_wire::task::{HostFacts, PreflightReport, TaskOutcome, TaskSupport};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

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
    /// Its machine's id.
    pub machine_id: Option<String>,
    /// Task types of its agent.
    pub support: Vec<TaskSupport>,
    /// What was learnt or told.
    pub facts: Option<HostFacts>,
    /// What its newest preflight found.
    pub preflight: Option<PreflightReport>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Grows with every change of this row; compare-and-swap.
    pub generation: u64,
}

impl NodeRecord {
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
    /// When it was imported.
    pub imported_at: Timestamp,
}

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

/// A lease with its fence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Its name.
    pub name: String,
    /// Who holds it.
    pub holder: ReplicaId,
    /// Grows with every change of holder and never falls.
    pub fence: u64,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}

/// One of the processes that are this control plane together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Which; a fresh one with every start.
    pub id: ReplicaId,
    /// Where other replicas reach it, `host:port`; absent where there can be no others.
    pub address: Option<String>,
    /// Where nodes reach it, `host:port`.
    pub channel: String,
    /// Its API.
    pub api_url: String,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
}

/// A connection that carries a node's channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The node.
    pub node: NodeId,
    /// The connection; never used again.
    pub connection: Uuid,
    /// The run of the agent at its other end: two live ones under one identity are a clone.
    pub instance: String,
    /// Who holds it.
    pub replica: ReplicaId,
    /// Where other replicas reach the holder, `host:port`.
    pub address: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// The version of the signing keys that the agent was given over it.
    #[serde(default)]
    pub key_set_version: u64,
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Its stream.
    pub stream: StreamName,
    /// Of what kind.
    pub kind: EventKind,
    /// `workload`, `node`, `operation`, …
    pub subject_kind: &'static str,
    /// The id of what it is about.
    pub subject_id: String,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// What happened, for clients.
    pub data: Value,
}

/// A written event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRecord {
    /// Its stream.
    pub stream: StreamName,
    /// Without gaps within its stream, from 1.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Of what kind.
    pub kind: EventKind,
    /// What it is about.
    pub subject_kind: String,
    /// The id of what it is about.
    pub subject_id: String,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// What happened, for clients.
    pub data: Value,
}

/// An audit record to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    /// Who acted.
    pub actor: String,
    /// What kind of actor.
    pub actor_type: ActorType,
    /// What was done.
    pub action: AuditAction,
    /// `workload/train`, `node/gpu-07`.
    pub target: String,
    /// Whose.
    pub project: Option<ProjectId>,
    /// How it ended.
    pub result: AuditResult,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

/// A written audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Grows without gaps.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Who acted.
    pub actor: String,
    /// What kind of actor.
    pub actor_type: ActorType,
    /// What was done.
    pub action: AuditAction,
    /// To what.
    pub target: String,
    /// Whose.
    pub project: Option<ProjectId>,
    /// How it ended.
    pub result: AuditResult,
    /// The correlation id of the request behind it.
    pub correlation: Option<CorrelationId>,
    /// Allowlisted metadata; never a secret.
    pub metadata: Value,
}

/// The remembered answer to a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// The token that asked.
    pub token: TokenId,
    /// The client's key.
    pub key: String,
    /// SHA-256 over method, path and body, 64 hex digits.
    pub request_sha256: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The body of the answer.
    pub body: String,
    /// When it was made.
    pub created_at: Timestamp,
}
