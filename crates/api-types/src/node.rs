//! Nodes, allocations, tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A machine of ours.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub region: Option<String>,
    /// What operators say of it.
    pub labels: BTreeMap<String, String>,
    /// Where it is in its life.
    pub state: String,
    /// Whether it can be reached.
    pub connectivity: String,
    /// Since when.
    pub connectivity_since: String,
    /// How far its clock was ahead of the control plane's when it connected last; negative when it was behind. More than five minutes either way
    /// have its tasks refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_skew_seconds: Option<i64>,
    /// Its agent's version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_version: Option<String>,
    /// What it said of itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<NodeFacts>,
    /// What its newest preflight found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preflight: Option<Preflight>,
    /// When it was registered.
    pub created_at: String,
}

/// What a preflight found.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Preflight {
    /// Checks that passed.
    pub passed: u32,
    /// Those that did not.
    pub findings: Vec<PreflightFinding>,
}

/// A check that did not pass.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PreflightFinding {
    /// Its stable name.
    pub check: String,
    /// `warning`, or `blocking` when nothing may be installed.
    pub severity: String,
    /// What was found.
    pub detail: String,
    /// What to do.
    pub fix: String,
}

/// What a node said of itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeFacts {
    /// Operating system.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// Its own addresses.
    pub addresses: Vec<String>,
    /// Whether it is a sandbox and no machine of its own.
    pub sandbox: bool,
}

/// Registers a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterNode {
    /// 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Where it stands: 1 to 63 of letters, digits and . _ -, with a letter or digit at both ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    pub region: Option<String>,
    /// What operators say of it: at most 64, of names of 1 to 63 letters, digits and . _ - / and values of at most 253 printable characters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The string that brings a machine in: shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Enrollment {
    /// The string; works once, for this node, for fifteen minutes.
    pub string: String,
    /// What root runs on the machine; the string is in it.
    pub command: String,
}

/// A registered machine and the string that brings it in.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegisteredNode {
    /// The node.
    pub node: Node,
    /// How it comes in.
    pub enrollment: Enrollment,
}

/// What a no-op task to a node took.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ping {
    /// The task.
    pub task: Task,
    /// From the push to the recorded result, in microseconds, by the control plane's clock.
    pub round_trip_us: u64,
}

/// A project's hold on a node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Allocation {
    /// Its id.
    pub id: String,
    /// The id of its project.
    pub project: String,
    /// The id of its node.
    pub node: String,
    /// The name of its node.
    pub node_name: String,
    /// Where it is in its life.
    pub state: String,
    /// Why, when it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// When it was made.
    pub created_at: String,
}

/// Gives a node to a project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAllocation {
    /// The project's name or id.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: String,
    /// The node's name or id.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub node: String,
}

/// A signed task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// The id of its node.
    pub node: String,
    /// The id of the operation it serves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub task_type: String,
    /// The version of its parameters' shape.
    pub schema: u32,
    /// Which attempt of its step.
    pub attempt: u32,
    /// Where it is.
    pub state: String,
    /// The key that signed it.
    pub key_id: String,
    /// SHA-256 of what was signed.
    pub envelope_sha256: String,
    /// The fence it carried.
    pub fence: u64,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Value>,
    /// When it was recorded.
    pub created_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<String>,
}
