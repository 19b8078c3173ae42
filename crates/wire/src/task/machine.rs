//! What a node's machine is made of: the longer answer of `host.inspect`.

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::{HostFacts, Preflight, PreflightReport, TaskSpec};

/// Asks what the node is, and on wish whether it is fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// Whether to measure how quickly writes reach the disk; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    /// What to look for besides; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<Preflight>,
}

impl Inspect {
    /// The first schema whose result describes the machine.
    pub const WITH_MACHINE: u32 = 2;
}

/// On which disk a measurement is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// On one that is the node's own: a sandbox shares its machine's and says nothing of it.
    OwnDisk,
    /// On any.
    AnyDisk,
}

/// What an inspection found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// What the node says it is.
    #[serde(flatten)]
    pub facts: HostFacts,
    /// What its machine is made of; absent from an agent of schema 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineFacts>,
    /// Whether it is fit, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightReport>,
}

/// What a machine is made of. A node's own word, as all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFacts {
    /// The processor's own name.
    pub cpu_model: String,
    /// Processors that are plugged in.
    pub cpu_sockets: u32,
    /// Cores of all of them; a core may be several logical CPUs.
    pub cpu_cores: u32,
    /// Memory in use as swap, at most.
    pub swap_bytes: u64,
    /// What the firmware calls the machine, for example `VMware Virtual Platform`.
    pub product: String,
    /// Graphics processors and the like, by bus address.
    pub gpus: Vec<GpuFacts>,
    /// The version of the GPUs' driver, where one is loaded.
    pub gpu_driver: Option<String>,
    /// File systems on disks of the node's own.
    pub file_systems: Vec<FileSystemFacts>,
    /// The one that an app's data would lie on.
    pub data_disk: Option<DataDisk>,
    /// Where packets go for which nothing else is known.
    pub default_route: Option<RouteFacts>,
    /// Name servers that the host asks.
    pub name_servers: Vec<String>,
    /// Who keeps the clock.
    pub clock: ClockKeeping,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFacts {
    /// Where it is plugged in, for example `0000:3b:00.0`.
    pub bus: String,
    /// Vendor and device as PCI has them, for example `10de:2335`.
    pub pci_id: String,
    /// Its name, where the driver or the host's list of devices knows one.
    pub model: Option<String>,
    /// Its memory, where its driver tells.
    pub memory_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSystemFacts {
    /// Where it is mounted.
    pub path: String,
    /// What is mounted, for example `/dev/nvme0n1p2`.
    pub device: String,
    /// Its type, for example `ext4`.
    pub kind: String,
    /// Its size.
    pub size_bytes: u64,
    /// What an unprivileged writer may still use.
    pub free_bytes: u64,
}

/// The file system that an app's data would lie on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataDisk {
    /// The folder that was asked for.
    pub folder: String,
    /// The file system under it.
    #[serde(flatten)]
    pub on: FileSystemFacts,
    /// How quickly writes reach it, once that was measured.
    pub writes: Option<WriteLatency>,
}

/// How long `fdatasync` took after small writes, as etcd makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteLatency {
    /// How many were made.
    pub writes: u32,
    /// Half of them took at most this.
    pub p50_us: u32,
    /// 99 of 100 took at most this.
    pub p99_us: u32,
    /// None took longer.
    pub max_us: u32,
}

/// A default route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteFacts {
    /// The next machine on the way; absent on a link that needs none.
    pub gateway: Option<String>,
    /// The link it leaves by.
    pub link: String,
    /// The largest packet of that link; 0 when it does not say.
    pub mtu: u32,
}

/// Who keeps a clock in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kept", rename_all = "snake_case")]
pub enum ClockKeeping {
    /// The machine around this container or sandbox.
    ByMachine,
    /// The kernel says that it is synchronized.
    Synchronized {
        /// By which service, where one is known to run.
        by: Option<String>,
    },
    /// A service runs for it, and it is not synchronized.
    NotYet {
        /// Which.
        by: String,
    },
    /// No service runs for it, and it is not synchronized.
    ByNobody,
    /// Nobody told, or in a word that is not known here.
    #[default]
    #[serde(other)]
    Unknown,
}

impl MachineFacts {
    /// Most GPUs told.
    pub const GPUS_MAX: usize = 64;
    /// Most file systems told.
    pub const FILE_SYSTEMS_MAX: usize = 32;
    /// Most name servers told.
    pub const NAME_SERVERS_MAX: usize = 16;
}

impl TaskSpec for Inspect {
    const TYPE: TaskType = TaskType::Inspect;
    const SCHEMA: u32 = 3;
    const ADDED: &'static [(u32, &'static str)] =
        &[(2, "measure"), (2, "preflight"), (3, "preflight.wants.reserved_variables")];
    type Result = Inspection;
}
