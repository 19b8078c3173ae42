//! Apps, releases, workloads and their operations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    diff::Drift,
    report::{ControllerReport, MemberReport},
    waiting::Waiting,
};

/// An app of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct App {
    /// Short name of the app in commands and paths.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Description in one sentence.
    pub summary: String,
    /// `published` once a release is imported, otherwise `draft`.
    #[serde(default)]
    #[schema(value_type = crate::schema::AppStatus)]
    pub status: String,
    /// Imported versions.
    pub versions: Vec<String>,
    /// The imported versions whose release declares itself a stand-in.
    #[serde(default)]
    pub stand_ins: Vec<String>,
    /// Guarantees that the platform gives for the app, one sentence each.
    pub promises: Vec<String>,
    /// Limits of those guarantees, one sentence each.
    pub not_promised: Vec<String>,
    /// JSON Schema of the placement of a new workload.
    pub placement_schema: Value,
    /// JSON Schema of the placement of additional members.
    #[serde(default)]
    pub added_members_schema: Value,
    /// JSON Schema of the configuration.
    pub config_schema: Value,
    /// Operations of the app.
    #[serde(default)]
    pub operations: Vec<AppOperation>,
}

/// An operation of an app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppOperation {
    /// Kind of change, for example `decommission` or `upgrade`.
    #[schema(value_type = crate::schema::OperationKind)]
    pub kind: String,
    /// JSON Schema of the parameters.
    pub parameters_schema: Value,
    /// False if the app cannot carry out the operation yet.
    pub available: bool,
}

/// A file of an imported release.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// Slug of the app.
    pub app: String,
    /// Version of the release.
    pub version: String,
    /// Name of the file within the release.
    pub name: String,
    /// SHA-256 of the content, 64 hex digits.
    pub sha256: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The folder or URL from which the release was imported. Only platform roles see it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// How the release was verified: `sums-sha256:` and the digest of the checksum file that the import request named, `key:` and the id of the
    /// trusted key that signed the checksum file, or `nothing`. Only platform roles see it. Absent if an older version imported the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified_by: Option<String>,
    /// True if the release declares itself a stand-in.
    pub stand_in: bool,
}

/// Imports a release.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRelease {
    /// Slug of the app.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// Version of the release. If the release declares a version, it must be that one. Defaults to the declared version, or to the last
    /// segment of the source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+~-]+$")]
    pub version: Option<String>,
    /// Absolute path of a folder on the control plane's machine, or an `https` URL, with the layout of the app's releases. The folder must
    /// be below the release folder in the control plane's settings.
    #[schema(min_length = 1, max_length = 4096, format = "line")]
    pub source: String,
    /// SHA-256 of the release's checksum file as its publisher announces it, 64 lower-case hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 64, max_length = 64, pattern = "^[0-9a-f]{64}$")]
    pub sums_sha256: Option<String>,
    /// Text of a minisign signature of the release's checksum file. Without a signature and a digest in the request, the control plane uses the
    /// `.minisig` file next to the checksum file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 4096, format = "minisign")]
    pub signature: Option<String>,
}

/// A deployed app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// Id of the workload.
    pub id: String,
    /// Name of the workload.
    pub name: String,
    /// Id of the project.
    pub project: String,
    /// Name of the project.
    #[serde(default)]
    pub project_name: String,
    /// Slug of the app.
    pub app: String,
    /// Version of the app's release.
    pub version: String,
    /// Lifecycle state, for example `deploying` or `running`.
    #[schema(value_type = crate::schema::Lifecycle)]
    pub lifecycle: String,
    /// Current phase, one of the app's own phases.
    pub phase: String,
    /// Number of steps of the newest operation that succeeded.
    pub completed: u32,
    /// Number of steps of the newest operation.
    pub total: u32,
    /// Health: `progressing`, `healthy`, `degraded`, `failed`, or `none` if there is nothing to judge.
    #[schema(value_type = crate::schema::Health)]
    pub health: String,
    /// True if the workload runs and its endpoint is served by a healthy member.
    #[serde(default)]
    pub usable: bool,
    /// Available recovery, for example `none`, `retrying` or `resumable`.
    #[schema(value_type = crate::schema::Recovery)]
    pub recovery: String,
    /// Address of the cluster's API, the first endpoint with the purpose `api`. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoint: Option<String>,
    /// Addresses at which clients reach the workload.
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    /// Cause of a failure or degradation: that of the workload, otherwise that of its first degraded member.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// Section of the list in which the workload appears: `needs_attention`, `active`, `stopped` or `history`.
    #[serde(default)]
    #[schema(value_type = crate::schema::Section)]
    pub section: String,
    /// Current action or wait condition of the open operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// What it waits for. Absent if it runs well without an open operation, or is decommissioned.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Number of members that are ready and healthy.
    #[serde(default)]
    pub members_ready: u32,
    /// Number of members that are not removed.
    #[serde(default)]
    pub members_total: u32,
    /// Number of those members in each state.
    #[serde(default)]
    pub member_states: BTreeMap<String, u32>,
    /// What can be requested now: kinds of operations, `resume` of the newest operation if it ended without success, and `cancel` of the open
    /// one. While an operation is open that a person or program requested, nothing but `cancel`. `actions` of each member has the kinds that
    /// are about one member.
    #[serde(default)]
    #[schema(value_type = Vec<crate::schema::WorkloadAction>)]
    pub actions: Vec<String>,
    /// How its nodes and its cluster deviate. Absent if nothing that deviates is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<Drift>,
    /// True if the workload's release is a stand-in.
    pub stand_in: bool,
    /// Generation of the requested state. Every accepted operation that changes the workload raises it.
    pub generation: u64,
    /// Generation of the last operation that succeeded completely.
    pub observed_generation: u64,
    /// Time at which the request was accepted.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// An address at which clients reach a workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    /// Purpose, one of the app's own, for example `api`.
    pub purpose: String,
    /// Address, for example `https://10.0.0.7:6443`.
    pub address: String,
}

/// Cause of a failure or degradation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Stable code.
    pub code: String,
    /// Description that names the object at fault.
    pub summary: String,
    /// Source of the evidence, for example a systemd unit's journal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_source: Option<String>,
    /// Time of the evidence, if its source records one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub evidence_at: Option<String>,
    /// Text of the evidence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// Next action.
    pub next: String,
    /// Command that carries out the next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// A workload with its members.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkloadDetail {
    /// The workload.
    pub workload: Workload,
    /// Settings with which it was deployed; empty if all are the app's defaults. The app's `config_schema` describes them. They contain no
    /// secrets.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub config: serde_json::Map<String, Value>,
    /// The members, in the order of their placement; of removed ones the 64 that were removed last.
    /// `GET /api/v1/workloads/{workload}/members` lists all.
    pub members: Vec<Member>,
    /// Id of the newest operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
    /// `resume` and `cancel`, where `actions` does not have them, with the reason.
    #[serde(default)]
    pub refused_actions: Vec<RefusedAction>,
    /// The last report of its controller, if one reports.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub controller: Option<ControllerReport>,
    /// Present while a service account controls the workload and has not reported about its present generation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub controller_waiting: Option<Waiting>,
}

/// An action on a workload that is refused now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusedAction {
    /// The action.
    #[schema(value_type = crate::schema::WorkloadAction)]
    pub action: String,
    /// Stable code of the reason.
    pub code: String,
    /// Reason, in one sentence.
    pub detail: String,
    /// Next action.
    pub next: String,
}

/// The part of a workload on one machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Name of the member, for example `agent-2`.
    pub name: String,
    /// Id of the node. Absent for a member on an external machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// Name of the node or of the external machine.
    pub node_name: String,
    /// State of the member, for example `joining` or `ready`.
    #[schema(value_type = crate::schema::MemberState)]
    pub state: String,
    /// Health: `progressing`, `healthy`, `degraded`, `failed`, or `none` once the member is removed.
    #[schema(value_type = crate::schema::Health)]
    pub health: String,
    /// Cause of a failure or degradation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// What it waits for. Absent if it is ready and well, or removed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// What the workload's controller reported about it, while that counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported: Option<MemberReport>,
    /// Kinds of operations that can be requested for this member now; empty while an operation is open.
    #[serde(default)]
    #[schema(value_type = Vec<crate::schema::OperationKind>)]
    pub actions: Vec<String>,
}

/// Deploys an app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// Name or id of the project. Defaults to the caller's project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
    /// Slug of the app.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// Version of the app. Defaults to the version that was imported last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+~-]+$")]
    pub version: Option<String>,
    /// Name of the workload: 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Allocations for the members. The app's `placement_schema` defines the shape.
    #[schema(value_type = Object)]
    pub placement: Value,
    /// Settings. The app's `config_schema` defines the shape. They are stored and shown: never send a secret.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Object>)]
    pub config: Value,
}

/// Adds members to a workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMembers {
    /// Slug of the workload's app.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// Allocations for the new members. The app's `added_members_schema` defines the shape.
    #[schema(value_type = Object)]
    pub placement: Value,
}

/// Starts an operation on a workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartOperation {
    /// Slug of the workload's app.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// Kind of change, one of the app's operations, for example `upgrade`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z_]+$")]
    pub kind: String,
    /// Parameters by name. The `parameters_schema` of the app's operation defines them. They are stored and shown: never send a secret.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub parameters: serde_json::Map<String, Value>,
}

/// An accepted operation with its workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Started {
    /// The workload at the time of acceptance.
    pub workload: Workload,
    /// The operation.
    pub operation: Operation,
}

/// A durable change of a workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Id of the operation.
    pub id: String,
    /// Id of the workload.
    pub workload: String,
    /// Name of the workload.
    #[serde(default)]
    pub workload_name: String,
    /// Name of the project.
    #[serde(default)]
    pub project_name: String,
    /// Kind of change, for example `deploy` or `decommission`.
    #[schema(value_type = crate::schema::OperationKind)]
    pub kind: String,
    /// Parameters by name.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: serde_json::Map<String, Value>,
    /// State of the operation, for example `running` or `needs_attention`.
    #[schema(value_type = crate::schema::OperationState)]
    pub state: String,
    /// Name of the requester, as in audit records: `control-plane` for the platform itself.
    pub requested_by: String,
    /// The differences for which the platform requested the operation by itself. Absent if a person or program requested it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Id of the operation that this one resumes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resumes: Option<String>,
    /// Id of the later operation that took its place, if the operation is `failed`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub superseded_by: Option<String>,
    /// Correlation id of the request.
    #[serde(default)]
    pub correlation_id: String,
    /// True if a caller requested cancellation, or if the platform's operation yields to a person's.
    #[serde(default)]
    pub cancel_requested: bool,
    /// First fault of the operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// What it waits for. Absent if it ended and needs no attention.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Time at which the request was accepted.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the operation ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
}

/// An operation with its steps.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationDetail {
    /// The operation.
    pub operation: Operation,
    /// The steps, in the order of the plan.
    pub steps: Vec<Step>,
    /// Residue report of each node whose removal has ended, in the order of the steps, also of nodes on which nothing is left and of those
    /// that were given up.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub residue: Vec<NodeResidue>,
}

/// What the removal of a member left on its node. Without items and unchecked parts, nothing is left.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeResidue {
    /// Name of the member.
    pub member: String,
    /// Name of the node.
    pub node_name: String,
    /// Items that are left, each with its kind, for example `path /var/lib/kubelet`.
    pub items: Vec<String>,
    /// Parts that could not be checked, each with its reason.
    pub unchecked: Vec<String>,
    /// Paths and units that the removal found before it began. Empty if its tasks do not list them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub found: Vec<String>,
    /// Those of `found` that the removal removed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub removed: Vec<String>,
    /// Reason for which the member was given up: then nothing shows what is left on the node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub given_up: Option<String>,
}

/// A step of an operation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Name of the step, unique within the operation.
    pub key: String,
    /// Phase to which the step belongs, one of the app's own phases.
    pub phase: String,
    /// State of the step, for example `running` or `backoff`.
    #[schema(value_type = crate::schema::StepState)]
    pub state: String,
    /// Number of attempts that began.
    pub attempts: u32,
    /// Who has to act while the step runs: `platform`, `node` or `cluster`.
    #[serde(default)]
    #[schema(value_type = crate::schema::WaitingFrom)]
    pub awaits: String,
    /// Id of the task of the current attempt. Absent if the step is not a task.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task: Option<String>,
    /// Current action or wait condition.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// Cause of the failure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// What it waits for. Absent if it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Start of the first attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// End of the step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
}

/// Requests credentials for a workload's cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestAccess {
    /// Kind of credential: `direct` or `break-glass`. Defaults to `direct`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<crate::schema::AccessKindName>)]
    pub kind: Option<String>,
    /// Role in the cluster: `cluster-admin` or `cluster-view`. Defaults to `cluster-admin` if the caller may use it, otherwise to
    /// `cluster-view`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<crate::schema::ClusterRole>)]
    pub role: Option<String>,
    /// Lifetime in seconds, from ten minutes to thirty days. A break-glass credential lives for at most an hour.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 600, maximum = 2_592_000)]
    pub ttl_seconds: Option<u64>,
    /// Reason in one line of 1 to 500 printable characters. Required for break-glass.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: Option<String>,
}

/// A delivered credential. The server shows it only in this response.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGranted {
    /// Id of the access grant, with which the credential can be revoked.
    pub grant: String,
    /// Kind of credential: `direct` or `break-glass`.
    #[schema(value_type = crate::schema::AccessKindName)]
    pub kind: String,
    /// Role in the cluster: `cluster-admin` or `cluster-view`.
    #[schema(value_type = crate::schema::ClusterRole)]
    pub role: String,
    /// Time at which the credential expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Content of the kubeconfig file.
    pub kubeconfig: String,
}
