//! Hardware and system facts of a node: the extended result of `host.inspect`.

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::{HostFacts, Preflight, PreflightReport, TaskSpec};

/// Requests a node's inventory and optionally a preflight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// Disk for which to measure write latency, if any; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    /// Preflight to run in addition; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<Preflight>,
}

impl Inspect {
    /// First schema whose result contains [`MachineFacts`].
    pub const SCHEMA_WITH_MACHINE: u32 = 2;
}

/// Selects the disks on which write latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Only a disk that the node does not share. A sandbox shares its machine's disk, so a measurement there is not meaningful.
    OwnDisk,
    /// Any disk.
    AnyDisk,
}

/// Result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// Basic facts of the node.
    #[serde(flatten)]
    pub facts: HostFacts,
    /// Hardware and system facts; absent from an agent of schema 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineFacts>,
    /// Result of the preflight, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightReport>,
}

/// Hardware and system facts, as reported by the node and therefore not trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFacts {
    /// Model name of the processor.
    pub cpu_model: String,
    /// Number of populated processor sockets.
    pub cpu_sockets: u32,
    /// Physical cores in all sockets; a core may provide several logical CPUs.
    pub cpu_cores: u32,
    /// Size of swap space in bytes.
    pub swap_bytes: u64,
    /// Product name from the firmware, for example `VMware Virtual Platform`.
    pub product: String,
    /// GPUs and other accelerators, ordered by bus address.
    pub gpus: Vec<GpuFacts>,
    /// Version of the loaded GPU driver, if any.
    pub gpu_driver: Option<String>,
    /// File systems on the node's own disks.
    pub file_systems: Vec<FileSystemFacts>,
    /// File system for an app's data.
    pub data_disk: Option<DataDisk>,
    /// Default route, if there is one.
    pub default_route: Option<RouteFacts>,
    /// Name servers that the host uses.
    pub name_servers: Vec<String>,
    /// State of clock synchronization.
    pub clock: ClockSync,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFacts {
    /// PCI bus address, for example `0000:3b:00.0`.
    pub bus: String,
    /// PCI vendor and device id, for example `10de:2335`.
    pub pci_id: String,
    /// Model name, if the driver or the host's PCI id list knows it.
    pub model: Option<String>,
    /// Memory in bytes, if the driver reports it.
    pub memory_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSystemFacts {
    /// Mount point.
    pub path: String,
    /// Mounted device, for example `/dev/nvme0n1p2`.
    pub device: String,
    /// File system type, for example `ext4`.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes available to unprivileged users.
    pub free_bytes: u64,
}

/// The file system for an app's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataDisk {
    /// The requested directory.
    pub folder: String,
    /// The file system that contains the directory.
    #[serde(flatten)]
    pub on: FileSystemFacts,
    /// Write latency, if it was measured.
    pub writes: Option<WriteLatency>,
}

/// Latency of `fdatasync` after small writes like etcd's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteFacts {
    /// Address of the gateway; absent on an interface that needs none.
    pub gateway: Option<String>,
    /// Name of the outgoing interface.
    pub link: String,
    /// MTU of that interface in bytes; 0 if unknown.
    pub mtu: u32,
}

/// State of a node's clock synchronization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kept", rename_all = "snake_case")]
pub enum ClockSync {
    /// The machine around this container or sandbox keeps the clock.
    ByMachine,
    /// The kernel reports that the clock is synchronized.
    Synchronized {
        /// The time service, if one is known to run.
        by: Option<String>,
    },
    /// A time service runs, but the clock is not synchronized yet.
    NotYet {
        /// The time service.
        by: String,
    },
    /// No time service runs, and the clock is not synchronized.
    #[serde(alias = "by_nobody")]
    NoTimeService,
    /// Not reported, or a value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl MachineFacts {
    /// Maximum number of GPUs listed.
    pub const GPUS_MAX: usize = 64;
    /// Maximum number of file systems listed.
    pub const FILE_SYSTEMS_MAX: usize = 32;
    /// Maximum number of name servers listed.
    pub const NAME_SERVERS_MAX: usize = 16;
}

impl TaskSpec for Inspect {
    const TYPE: TaskType = TaskType::Inspect;
    const SCHEMA: u32 = 3;
    const ADDED: &'static [(u32, &'static str)] =
        &[(2, "measure"), (2, "preflight"), (3, "preflight.wants.reserved_variables")];
    type Result = Inspection;
}
