//! Tasks that inspect the host itself.

use std::fmt;

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::{HostRequirements, TaskSpec};

/// Changes nothing and returns at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noop {}

/// Result of [`Noop`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoopDone {}

/// Description of a node, as reported by the node. It is displayed and used for nothing but scheduling on that node.
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
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Addresses of the node; its services listen on the first.
    pub addresses: Vec<String>,
    /// File systems on which apps would store data.
    pub disks: Vec<DiskFacts>,
    /// True in a sandbox that shares a machine with others.
    pub sandbox: bool,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// Mount point as seen by the node.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes available to unprivileged users.
    pub free_bytes: u64,
}

/// Checks whether an app could run on the node. Changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preflight {
    /// TCP ports that must be free on the node's own address.
    pub ports: Vec<u16>,
    /// Paths that must not exist, as an earlier installation leaves them.
    pub absent_paths: Vec<String>,
    /// Paths that the app's uninstall script would delete although the app did not create them: their presence is a warning.
    pub endangered_paths: Vec<String>,
    /// Required free space under `/var/lib`, in bytes.
    pub free_bytes_min: u64,
    /// Further requirements of the app; since schema 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<HostRequirements>,
}

/// Result of a preflight. The task succeeds even if there are findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightReport {
    /// Number of checks that passed.
    pub passed: u32,
    /// Checks that did not pass, at most [`PreflightReport::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Names of the checks that ran. The report says nothing of other checks: their earlier findings stay valid. Empty in reports of agents
    /// that do not list them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checked: Vec<String>,
}

impl PreflightReport {
    /// Maximum number of findings and of checks listed.
    pub const FINDINGS_MAX: usize = 64;
}

/// One finding of a preflight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name of the check, for example `port_taken`.
    pub check: String,
    /// Severity of the finding.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub detail: String,
    /// What to do.
    pub fix: String,
    /// Observed text, for example a line of a file, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The app can be installed, but may have problems.
    Warning,
    /// The app must not be installed.
    Blocking,
}

/// Lists what an app left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residue {
    /// Paths that must not exist.
    pub paths: Vec<String>,
    /// Paths under which nothing may be mounted.
    pub mount_prefixes: Vec<String>,
    /// Ports on which nothing may listen.
    pub ports: Vec<u16>,
    /// Units that systemd must not know any more.
    pub units: Vec<String>,
    /// Path prefixes of programs of which no process may run.
    pub process_prefixes: Vec<String>,
    /// UDP ports on which nothing may listen; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp_ports: Vec<u16>,
    /// Name prefixes of network interfaces that must not exist; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_prefixes: Vec<String>,
    /// Texts that no packet filter rule may contain; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firewall_marks: Vec<String>,
    /// Name prefixes of cgroups in which no process may run; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_prefixes: Vec<String>,
}

/// Remaining residue. This is hygiene, not attestation: the tenant had root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueReport {
    /// Every item found, at most [`ResidueReport::ITEMS_MAX`]. Empty means clean, if `unseen` is empty too.
    pub items: Vec<ResidueItem>,
    /// What could not be checked, and why; at most [`ResidueReport::UNSEEN_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

impl ResidueReport {
    /// Maximum number of items listed.
    pub const ITEMS_MAX: usize = 200;
    /// Maximum number of unchecked items listed.
    pub const UNSEEN_MAX: usize = 8;
}

/// One item of residue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueItem {
    /// Kind of the item.
    pub kind: ResidueKind,
    /// The item itself: a path, a port, a unit, or a process with its id.
    pub what: String,
}

/// Kinds of residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResidueKind {
    /// A file or directory.
    Path,
    /// A mount.
    Mount,
    /// A port with a listener.
    Port,
    /// A systemd unit.
    Unit,
    /// A process.
    Process,
    /// A network interface.
    Link,
    /// A packet filter rule.
    FirewallRule,
}

impl fmt::Display for ResidueItem {
    /// Formats the item with its kind, for example `path /var/lib/kubelet`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ResidueKind::Path => "path",
            ResidueKind::Mount => "mount",
            ResidueKind::Port => "listener",
            ResidueKind::Unit => "unit",
            ResidueKind::Process => "process",
            ResidueKind::Link => "link",
            ResidueKind::FirewallRule => "firewall rule",
        };
        write!(f, "{kind} {}", self.what)
    }
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
