//! Apps, their releases, workloads and what is done with them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An app of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct App {
    /// Its short name in commands.
    pub slug: String,
    /// Its label.
    pub name: String,
    /// One sentence.
    pub summary: String,
    /// `published` once a release is imported, else `draft`.
    #[serde(default)]
    pub status: String,
    /// Versions that are imported.
    pub versions: Vec<String>,
    /// Those of them whose release says of itself that it is a stand-in.
    #[serde(default)]
    pub stand_ins: Vec<String>,
    /// What the platform promises.
    pub promises: Vec<String>,
    /// What it does not.
    pub not_promised: Vec<String>,
    /// JSON Schema of a placement.
    pub placement_schema: Value,
    /// JSON Schema of the settings.
    pub config_schema: Value,
}

/// A file of an imported release.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    /// The app's slug.
    pub app: String,
    /// The release's version.
    pub version: String,
    /// The release's own name for the file.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// Its length.
    pub size_bytes: u64,
    /// Where it came from; shown to those who run the platform.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// What verified its release: `sums-sha256:` with the digest of the sum file that the import named, `key:` with the id of the trusted key that
    /// signed it, or `nothing`; shown to those who run the platform, and absent where an older version imported it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified_by: Option<String>,
    /// Whether the release says of itself that it is a stand-in.
    pub stand_in: bool,
}

/// Imports a release.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRelease {
    /// The app's slug.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// The release's version; what the release says itself when absent, else the last part of its source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+~-]+$")]
    pub version: Option<String>,
    /// A folder of the control plane's machine by its absolute path, or an `https` URL; laid out like a release of the app. A folder lies below the one
    /// that the control plane's settings name.
    #[schema(min_length = 1, max_length = 4096, format = "line")]
    pub source: String,
    /// SHA-256 of the release's sum file, 64 lower-case hex digits, as its publisher tells it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 64, max_length = 64, pattern = "^[0-9a-f]{64}$")]
    pub sums_sha256: Option<String>,
    /// The text of a minisign signature over the release's sum file; where neither this nor the digest is named, the file `.minisig` beside the sum
    /// file counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 4096, format = "minisign")]
    pub signature: Option<String>,
}

/// A deployed app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The id of its project.
    pub project: String,
    /// The app's slug.
    pub app: String,
    /// The version it runs.
    pub version: String,
    /// Where it is in its life.
    pub lifecycle: String,
    /// The app's phase.
    pub phase: String,
    /// Steps of its newest operation that succeeded.
    pub completed: u32,
    /// Steps of its newest operation.
    pub total: u32,
    /// How it is.
    pub health: String,
    /// What can be done.
    pub recovery: String,
    /// Where clients reach it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoint: Option<String>,
    /// Why, when it is not well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// Where lists show it: `needs_attention`, `active`, `stopped` or `history`.
    #[serde(default)]
    pub section: String,
    /// What its open operation does or waits for now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// Members that are ready and healthy.
    #[serde(default)]
    pub members_ready: u32,
    /// Members that are not removed.
    #[serde(default)]
    pub members_total: u32,
    /// Whether its release is a stand-in.
    pub stand_in: bool,
    /// Grows with what is asked of it.
    pub generation: u64,
    /// What was last carried out whole.
    pub observed_generation: u64,
    /// When it was accepted.
    pub created_at: String,
}

/// Why something is not well.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Stable code.
    pub code: String,
    /// What happened to whom.
    pub summary: String,
    /// Where it was seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_source: Option<String>,
    /// When it was seen, where its source says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_at: Option<String>,
    /// What was seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// What to do.
    pub next: String,
    /// A command that does it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// A workload with its members.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkloadDetail {
    /// The workload.
    pub workload: Workload,
    /// Its members, in the order of their placement.
    pub members: Vec<Member>,
    /// The id of its newest operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
}

/// A workload's part on one node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// For example `agent-2`.
    pub name: String,
    /// The id of its node.
    pub node: String,
    /// The name of its node.
    pub node_name: String,
    /// Where it is in its life.
    pub state: String,
    /// How it is.
    pub health: String,
    /// Why, when it is not well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
}

/// Deploys an app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// The project, by name or id; the caller's own when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
    /// The app's slug.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub app: String,
    /// The version; the newest imported one when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9.+~-]+$")]
    pub version: Option<String>,
    /// 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Where, in the app's own shape.
    #[schema(value_type = Object)]
    pub placement: Value,
    /// Settings, in the app's own shape.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub config: Value,
}

/// Adds members.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMembers {
    /// Where, in the app's own shape.
    #[schema(value_type = Object)]
    pub placement: Value,
}

/// An accepted operation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Started {
    /// The workload as accepted.
    pub workload: Workload,
    /// The operation.
    pub operation: Operation,
}

/// A durable operation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// The id of its workload.
    pub workload: String,
    /// What it is for.
    pub kind: String,
    /// Where it is.
    pub state: String,
    /// Who asked.
    pub requested_by: String,
    /// The id of the operation that it tries again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resumes: Option<String>,
    /// The request behind it.
    #[serde(default)]
    pub correlation_id: String,
    /// Whether somebody asked for its end.
    #[serde(default)]
    pub cancel_requested: bool,
    /// The first fault, when it did not go well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// When it was accepted.
    pub created_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<String>,
}

/// An operation with its steps.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationDetail {
    /// The operation.
    pub operation: Operation,
    /// Its steps, in the order of the plan.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Its name inside the operation.
    pub key: String,
    /// The app's phase that it belongs to.
    pub phase: String,
    /// Where it is.
    pub state: String,
    /// Attempts begun.
    pub attempts: u32,
    /// The id of its present attempt's task, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task: Option<String>,
    /// What it does or waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// When its first attempt began, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at_ms: Option<i64>,
    /// When it ended, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at_ms: Option<i64>,
}

/// Asks for access to a workload's cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskAccess {
    /// `direct` or `break-glass`; the server's default when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(pattern = "^(direct|break-glass)$")]
    pub kind: Option<String>,
    /// `cluster-admin` or `cluster-view`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(pattern = "^(cluster-admin|cluster-view)$")]
    pub role: Option<String>,
    /// Life in seconds: at least ten minutes, at most thirty days; of break-glass at most an hour.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 600, maximum = 2_592_000)]
    pub ttl_seconds: Option<u64>,
    /// Why, in 1 to 500 printable characters, in one line; needed for break-glass.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: Option<String>,
}

/// A delivered credential: shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGranted {
    /// The grant's id, for its withdrawal.
    pub grant: String,
    /// `direct` or `break-glass`.
    pub kind: String,
    /// Its role in the cluster.
    pub role: String,
    /// When it ends by itself.
    pub expires_at: String,
    /// The file for kubectl.
    pub kubeconfig: String,
}
