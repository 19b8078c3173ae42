//! Nodes, allocations, tasks.

use std::collections::BTreeMap;

use gpuaas_model::{LINE_FORMAT, Line};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{Object, ObjectBuilder, SchemaFormat, Type},
};

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
    /// Why its agent takes no tasks; absent where it takes them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_problem: Option<NodeProblem>,
    /// Its machine's own id, as its agent told it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine_id: Option<String>,
    /// When it was last found on another machine than before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine_changed: Option<MachineChange>,
    /// What it said of itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<NodeFacts>,
    /// What its newest preflight found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preflight: Option<Preflight>,
    /// When it was inspected last; absent when it is to be inspected anew.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inspected_at: Option<String>,
    /// When it was registered.
    pub created_at: String,
}

/// Why a node's agent takes no tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeProblem {
    /// Its stable code, with a page under `docs/errors/`.
    pub code: String,
    /// What the agent says of it.
    pub detail: String,
    /// Since when the control plane knows.
    pub since: String,
    /// What to do.
    pub next: String,
}

/// A node came back on another machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineChange {
    /// When that was seen.
    pub at: String,
    /// The id that its machine had before.
    pub before: String,
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
    /// Where that was seen, as it stands there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// What to do.
    pub fix: String,
    /// The command that does it, where that is safe.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// Names a fix.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FixNode {
    /// The fix, or the finding that it takes away: `inotify` or `inotify_low`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9_]+$")]
    pub finding: String,
}

/// What a fix did.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FixedNode {
    /// The node, looked at again.
    pub node: Node,
    /// Which fix.
    pub fix: String,
    /// The file on the node that keeps it over a reboot.
    pub path: String,
    /// Whether anything changed.
    pub changed: bool,
    /// What was applied now.
    pub applied: Vec<AppliedFix>,
}

/// A kernel parameter that was raised or a module that was loaded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppliedFix {
    /// Its name.
    pub name: String,
    /// What it was before; absent for a module.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<String>,
    /// What it is now.
    pub now: String,
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
    /// What its machine is made of; absent from an older agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<MachineFacts>,
}

/// What a machine is made of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineFacts {
    /// The processor's own name.
    pub cpu_model: String,
    /// Processors that are plugged in.
    pub cpu_sockets: u32,
    /// Cores of all of them.
    pub cpu_cores: u32,
    /// Swap.
    pub swap_bytes: u64,
    /// What the firmware calls the machine.
    pub product: String,
    /// GPUs, by bus address.
    pub gpus: Vec<Gpu>,
    /// The version of their driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu_driver: Option<String>,
    /// File systems on its own disks.
    pub file_systems: Vec<FileSystem>,
    /// The disk that an app's data would lie on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data_disk: Option<DataDisk>,
    /// Where packets go for which nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub default_route: Option<DefaultRoute>,
    /// Name servers that it asks.
    pub name_servers: Vec<String>,
    /// Who keeps its clock: `synchronized`, `not_yet`, `by_nobody`, `by_machine` (around a container or sandbox) or `unknown`.
    pub clock: String,
    /// The service that keeps it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_service: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// Where it is plugged in.
    pub bus: String,
    /// Vendor and device as PCI has them.
    pub pci_id: String,
    /// Its name, where driver or system know one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Its memory, where its driver tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileSystem {
    /// Where it is mounted.
    pub path: String,
    /// What is mounted.
    pub device: String,
    /// Its type.
    pub kind: String,
    /// Its size.
    pub size_bytes: u64,
    /// What may still be used.
    pub free_bytes: u64,
}

/// The disk that an app's data would lie on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataDisk {
    /// Where the data would lie.
    pub folder: String,
    /// The file system under it.
    pub file_system: FileSystem,
    /// How quickly writes reach it, once that was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub writes: Option<WriteLatency>,
}

/// How long `fdatasync` took after small writes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WriteLatency {
    /// How many were made.
    pub writes: u32,
    /// Half of them took at most this, in microseconds.
    pub p50_us: u32,
    /// 99 of 100 took at most this.
    pub p99_us: u32,
    /// None took longer.
    pub max_us: u32,
}

/// A default route.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefaultRoute {
    /// The next machine on the way.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gateway: Option<String>,
    /// The link it leaves by.
    pub link: String,
    /// The largest packet of that link; 0 when it does not say.
    pub mtu: u32,
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
    #[schema(schema_with = labels)]
    pub labels: BTreeMap<String, String>,
}

fn labels() -> Object {
    let value = ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(Line::LABEL_VALUE.characters_max()))
        .format(Some(SchemaFormat::Custom(LINE_FORMAT.to_owned())));
    let labels = ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(value));
    labels
        .description(Some(
            "What operators say of it: at most 64, of names of 1 to 63 letters, digits and . _ - / and values of at most 253 printable characters, \
             in one line.",
        ))
        .build()
}

/// Puts a node back, or issues a new string for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrollNode {
    /// Takes the machine as it is: also one that runs, and one that has not been reimaged since a tenant has left it. Needs a reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Why it is forced: 1 to 500 printable characters, kept in the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: Option<String>,
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
