//! Tasks about the host itself.

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::{HostWants, TaskSpec};

/// Changes nothing and answers at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noop {}

/// The answer to [`Noop`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoopDone {}

/// What a node says it is. Its own word: shown, never trusted for more than its own scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Host name.
    pub hostname: String,
    /// `/etc/machine-id`; changes when a machine is reinstalled.
    pub machine_id: String,
    /// Changes at every boot.
    pub boot_id: String,
    /// For example `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture as Rust names it, for example `x86_64`.
    pub arch: String,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// The node's own addresses, the one its services listen on first.
    pub addresses: Vec<String>,
    /// Where an app would put its data.
    pub disks: Vec<DiskFacts>,
    /// Whether this is a sandbox and no machine of its own.
    pub sandbox: bool,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// Where it is mounted, as the node sees it.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// What an unprivileged writer may still use.
    pub free_bytes: u64,
}

/// Checks whether an app could run here, before anything is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preflight {
    /// TCP ports that must be free on the node's own address.
    pub ports: Vec<u16>,
    /// Paths that must not exist: leftovers of an earlier installation.
    pub absent_paths: Vec<String>,
    /// Paths that the app's own uninstall would delete though it did not make them: their presence is a warning.
    pub endangered_paths: Vec<String>,
    /// Free space wanted under `/var/lib`, in bytes.
    pub free_bytes_min: u64,
    /// What else an app wants of a host; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<HostWants>,
}

/// What a preflight found; success of the task, whatever it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightReport {
    /// Checks that passed.
    pub passed: u32,
    /// Those that did not, at most [`PreflightReport::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
}

impl PreflightReport {
    /// Most findings listed.
    pub const FINDINGS_MAX: usize = 64;
}

/// One finding, with evidence and fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name of the check, for example `port_taken`.
    pub check: String,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub detail: String,
    /// What to do.
    pub fix: String,
    /// Where that was seen, as it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Warning,
    /// The app must not be installed.
    Blocking,
}

/// Lists what an app left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residue {
    /// Paths that must be gone.
    pub paths: Vec<String>,
    /// Paths under which nothing may be mounted.
    pub mount_prefixes: Vec<String>,
    /// Ports on which nothing may listen.
    pub ports: Vec<u16>,
    /// Units that must not be known any more.
    pub units: Vec<String>,
    /// Programs (by the start of their path) of which no process may remain.
    pub process_prefixes: Vec<String>,
    /// UDP ports on which nothing may listen; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_ports: Vec<u16>,
    /// Beginnings of the names of network links that must be gone; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_prefixes: Vec<String>,
    /// Texts that no rule of the packet filter may hold any more; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firewall_marks: Vec<String>,
    /// Beginnings of the names of control groups in which no process may remain; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_prefixes: Vec<String>,
}

/// What is still there. Hygiene, not attestation: the tenant was root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueReport {
    /// Every item found; empty means clean. At most [`ResidueReport::ITEMS_MAX`].
    pub items: Vec<ResidueItem>,
    /// What could not be looked at, and why; at most [`ResidueReport::UNSEEN_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

impl ResidueReport {
    /// Most items listed.
    pub const ITEMS_MAX: usize = 200;
    /// Most things listed that could not be looked at.
    pub const UNSEEN_MAX: usize = 8;
}

/// One thing that is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueItem {
    /// Of what kind.
    pub kind: ResidueKind,
    /// Which one: a path, a port, a unit, a process with its id.
    pub what: String,
}

/// Kinds of residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResidueKind {
    /// A file or folder.
    Path,
    /// A mount.
    Mount,
    /// A listener.
    Port,
    /// A unit.
    Unit,
    /// A process.
    Process,
    /// A network link.
    Link,
    /// A rule of the packet filter.
    FirewallRule,
}

impl TaskSpec for Noop {
    const TYPE: TaskType = TaskType::Noop;
    type Result = NoopDone;
}

impl TaskSpec for Preflight {
    const TYPE: TaskType = TaskType::Preflight;
    const SCHEMA: u32 = 3;
    const ADDED: &'static [(u32, &'static str)] = &[(2, "wants"), (3, "wants.reserved_variables")];
    type Result = PreflightReport;
}

impl TaskSpec for Residue {
    const TYPE: TaskType = TaskType::Residue;
    const SCHEMA: u32 = 2;
    const ADDED: &'static [(u32, &'static str)] =
        &[(2, "udp_ports"), (2, "link_prefixes"), (2, "firewall_marks"), (2, "group_prefixes")];
    type Result = ResidueReport;
}
