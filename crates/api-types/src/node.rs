//! Nodes, allocations and tasks.

use std::collections::BTreeMap;

use gpuaas_model::{LINE_FORMAT, Line};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{Object, ObjectBuilder, SchemaFormat, Type},
};

use crate::waiting::Waiting;

/// A machine that is registered with the control plane.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Id of the node.
    pub id: String,
    /// Name of the node.
    pub name: String,
    /// Region in which the machine stands.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub region: Option<String>,
    /// Labels that operators set.
    pub labels: BTreeMap<String, String>,
    /// State of the node, for example `active` or `needs_reimage`.
    #[schema(value_type = crate::schema::NodeState)]
    pub state: String,
    /// Connection of the agent: `never`, `connected`, `stale` or `unreachable`.
    #[schema(value_type = crate::schema::Connectivity)]
    pub connectivity: String,
    /// Time at which `connectivity` changed to its present value.
    #[schema(format = DateTime)]
    pub connectivity_since: String,
    /// Seconds by which the node's clock was ahead of the control plane's at the latest connection; negative if it was behind. If the
    /// clocks differ by more than five minutes, tasks are refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_skew_seconds: Option<i64>,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_version: Option<String>,
    /// Reason why the agent accepts no tasks. Absent if it accepts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_problem: Option<NodeProblem>,
    /// The agent's ledger, as the agent reported it at its latest connection with a usable one. Nothing proves the report.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ledger: Option<NodeLedger>,
    /// Machine id, as the agent reported it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine_id: Option<String>,
    /// The latest move of the node to another machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine_changed: Option<MachineChange>,
    /// Facts that the agent reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<NodeFacts>,
    /// Result of the latest preflight, of an inspection or of an operation, with earlier findings of checks that it did not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preflight: Option<Preflight>,
    /// Time of the latest inspection. Absent while a new inspection is due.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub inspected_at: Option<String>,
    /// What it waits for. Absent if it is connected and accepts tasks, or is retired.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Allocation by which a project holds the node. Present if the caller may see the project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocation: Option<Allocation>,
    /// Time of registration.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Reason why an agent accepts no tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeProblem {
    /// Stable code, with a page under `docs/errors/`.
    pub code: String,
    /// Description that the agent reported.
    pub detail: String,
    /// Time at which the control plane recorded the problem.
    #[schema(format = DateTime)]
    pub since: String,
    /// Next action.
    pub next: String,
}

/// The durable record of every task that an agent began and of its result.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeLedger {
    /// Id of the ledger. Another id means that the agent began a new one.
    pub id: String,
    /// Number of starts and ends of tasks that were ever written to it.
    pub written: u64,
    /// Highest fence in it: tasks with a lower one are refused.
    pub fence: u64,
}

/// A move of a node to another machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineChange {
    /// Time at which the control plane noticed the move.
    #[schema(format = DateTime)]
    pub at: String,
    /// Machine id before the move.
    pub before: String,
}

/// Result of a preflight.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Preflight {
    /// Number of checks that passed.
    pub passed: u32,
    /// Results of the checks that did not pass.
    pub findings: Vec<PreflightFinding>,
}

/// Result of a check that did not pass.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PreflightFinding {
    /// Stable name of the check.
    pub check: String,
    /// `warning`, or `blocking` if nothing may be installed.
    #[schema(value_type = crate::schema::Severity)]
    pub severity: String,
    /// Description of the finding.
    pub detail: String,
    /// Observed evidence, verbatim.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// Next action.
    pub fix: String,
    /// Command that fixes the finding. Absent if the platform offers no safe fix.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// Time of the report with the finding.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub found_at: Option<String>,
    /// Id of the operation whose preflight found it. Absent if an inspection did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
    /// Name of the operation's workload.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
}

/// Requests a fix.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FixNode {
    /// Name of the fix, or of the finding that it removes, for example `inotify` or `inotify_low`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9_]+$")]
    pub finding: String,
}

/// Result of a fix.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FixedNode {
    /// The node after a new inspection. If that inspection failed, the node as it was before the fix.
    pub node: Node,
    /// Name of the fix.
    pub fix: String,
    /// Path of the file on the node that makes the fix persistent across reboots.
    pub path: String,
    /// True if anything changed.
    pub changed: bool,
    /// Changes that this request made.
    pub applied: Vec<AppliedFix>,
}

/// A kernel parameter that was raised, or a kernel module that was loaded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AppliedFix {
    /// Name of the parameter or module.
    pub name: String,
    /// Previous value. Absent for a module.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<String>,
    /// Present value.
    pub now: String,
}

/// Facts that a node's agent reported.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeFacts {
    /// Operating system.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU architecture.
    pub arch: String,
    /// Number of logical CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Network addresses of the host.
    pub addresses: Vec<String>,
    /// True if the node is a sandbox instead of a machine.
    pub sandbox: bool,
    /// Hardware and system configuration. Absent if the agent is too old to report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<MachineFacts>,
}

/// Hardware and system configuration of a machine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineFacts {
    /// Model name of the processor.
    pub cpu_model: String,
    /// Number of processor sockets in use.
    pub cpu_sockets: u32,
    /// Number of cores of all processors.
    pub cpu_cores: u32,
    /// Size of the swap space in bytes.
    pub swap_bytes: u64,
    /// Product name from the firmware.
    pub product: String,
    /// GPUs, ordered by bus address.
    pub gpus: Vec<Gpu>,
    /// Version of the GPU driver. Absent if none is loaded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu_driver: Option<String>,
    /// File systems on the node's own disks.
    pub file_systems: Vec<FileSystem>,
    /// Disk for the app's data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data_disk: Option<DataDisk>,
    /// Default route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub default_route: Option<DefaultRoute>,
    /// Addresses of the configured name servers.
    pub name_servers: Vec<String>,
    /// Time synchronization: `synchronized`, `not_yet`, `no_time_service` (no service runs), `by_machine` (the host of the container or sandbox
    /// keeps the clock) or `unknown`.
    #[schema(value_type = crate::schema::ClockState)]
    pub clock: String,
    /// Name of the time synchronization service.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_service: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// PCI bus address, for example `0000:3b:00.0`.
    pub bus: String,
    /// PCI vendor and device id, for example `10de:2335`.
    pub pci_id: String,
    /// Model name. Absent if neither the driver nor the host's device list knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Memory in bytes. Absent if the driver does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileSystem {
    /// Mount point.
    pub path: String,
    /// Mounted device, for example `/dev/nvme0n1p2`.
    pub device: String,
    /// Type, for example `ext4`.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that an unprivileged process can still write.
    pub free_bytes: u64,
}

/// Disk for the app's data.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataDisk {
    /// Folder for the data.
    pub folder: String,
    /// File system that contains the folder.
    pub file_system: FileSystem,
    /// Measured write latency. Absent until it was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub writes: Option<WriteLatency>,
}

/// Duration of `fdatasync` after small writes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WriteLatency {
    /// Number of measured writes.
    pub writes: u32,
    /// Median in microseconds.
    pub p50_us: u32,
    /// 99th percentile in microseconds.
    pub p99_us: u32,
    /// Maximum in microseconds.
    pub max_us: u32,
}

/// A default route.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefaultRoute {
    /// Address of the gateway. Absent on a link that needs none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gateway: Option<String>,
    /// Name of the outgoing link.
    pub link: String,
    /// MTU of the link in bytes; 0 if unknown.
    pub mtu: u32,
}

/// Registers a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterNode {
    /// Name of the node: 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Region: 1 to 63 letters, digits and . _ -, with a letter or digit at both ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    pub region: Option<String>,
    /// At most 64 labels. A name has 1 to 63 letters, digits and . _ - / with a letter or digit at both ends; a value has at most 253
    /// printable characters.
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
            "Labels that operators set: at most 64. A name has 1 to 63 letters, digits and . _ - /; a value has at most 253 printable \
             characters in one line.",
        ))
        .build()
}

/// Resets a node, or issues a new enrollment string for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrollNode {
    /// Accepts the machine as it is, even if it is running or was not reimaged after a tenant used it. Requires a reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Reason for `force` in one line of 1 to 500 printable characters, kept in the audit record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: Option<String>,
}

/// An enrollment string. The server shows it only in this response.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Enrollment {
    /// The string. It is valid once, for this node, for fifteen minutes. Empty in a dry run, which issues none.
    pub string: String,
    /// Command to run as root on the machine. It contains the string. Empty in a dry run.
    pub command: String,
}

/// A registered machine with its enrollment string.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegisteredNode {
    /// The node.
    pub node: Node,
    /// The enrollment string.
    pub enrollment: Enrollment,
}

/// Result of a no-op task on a node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ping {
    /// The task.
    pub task: Task,
    /// Microseconds from the push of the task to its recorded result, by the control plane's clock.
    pub round_trip_us: u64,
}

/// The right of a project to use a node.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Allocation {
    /// Id of the allocation.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Name of the project.
    #[serde(default)]
    pub project_name: String,
    /// Id of the node.
    pub node: String,
    /// Name of the node.
    pub node_name: String,
    /// State of the allocation, for example `active` or `releasing`.
    #[schema(value_type = crate::schema::AllocationState)]
    pub state: String,
    /// Cause of the failure, or of the wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// Name of the workload that uses the node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// Name of the workload's member on the node, for example `agent-2`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// Component of the app that the member is, for example `server` or `agent`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub component: Option<String>,
    /// What it waits for. Absent if it is active or ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Allocates a node to a project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAllocation {
    /// Name or id of the project.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: String,
    /// Name or id of the node.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub node: String,
}

/// A signed task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Id of the task.
    pub id: String,
    /// Id of the node.
    pub node: String,
    /// Name of the node.
    #[serde(default)]
    pub node_name: String,
    /// Id of the operation to which the task belongs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
    /// Task type.
    #[serde(rename = "type")]
    #[schema(value_type = crate::schema::TaskType)]
    pub task_type: String,
    /// Schema version of the parameters.
    pub schema: u32,
    /// Number of the step's attempt.
    pub attempt: u32,
    /// State of the task, for example `running` or `expired`.
    #[schema(value_type = crate::schema::TaskState)]
    pub state: String,
    /// Id of the key that signed the task.
    pub key_id: String,
    /// SHA-256 of the signed envelope, in hex digits.
    pub envelope_sha256: String,
    /// Fence in the envelope.
    pub fence: u64,
    /// Result or failure of a task that ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Value>,
    /// What it waits for. Absent if it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<Waiting>,
    /// Time at which the task was recorded.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the task ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
}
