//! Tasks that manage RKE2 on one node, as data. Paths and unit names are RKE2's defaults.
//!
//! Deliberately absent: what a task does to a host (`app-rke2-handlers`), and when it runs (`app-rke2`).

mod drift;
mod result;
#[cfg(test)]
mod tests;

use gpuaas_model::{SecretId, TaskType, Timestamp};
use gpuaas_wire::task::{ArtifactRef, JournalExcerpt, SecretRef, TaskDefinition, TaskSpec, UnitReport};
use serde::{Deserialize, Serialize};

pub use drift::{Deviation, DeviationKind, Rke2Expected};

/// RKE2's task types.
pub const TASKS: &[TaskDefinition] = &[
    TaskDefinition::of::<Rke2Install>(),
    TaskDefinition::of::<Rke2Configure>(),
    TaskDefinition::of::<Rke2Start>(),
    TaskDefinition::of::<Rke2Stop>(),
    TaskDefinition::of::<Rke2Enable>(),
    TaskDefinition::of::<Rke2Observe>(),
    TaskDefinition::of::<Rke2KubeconfigRead>(),
    TaskDefinition::of::<Rke2Uninstall>(),
];

/// RKE2 service that a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rke2Role {
    /// `rke2-server.service`.
    Server,
    /// `rke2-agent.service`.
    Agent,
}

impl Rke2Role {
    /// Returns the name of the role's unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Server => "rke2-server.service",
            Self::Agent => "rke2-agent.service",
        }
    }
}

/// Installs a fetched release like RKE2's install script, but without running that script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Install {
    /// The release, for example `v1.36.3+rke2r1`.
    pub version: String,
    /// The archive `rke2.linux-amd64.tar.gz`.
    pub archive: ArtifactRef,
    /// Image archives to place in `/var/lib/rancher/rke2/agent/images`.
    pub images: Vec<ArtifactRef>,
}

/// Result of [`Rke2Install`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Installed {
    /// First line of `rke2 --version`.
    pub version_line: String,
    /// Files written by this task; 0 if all were in place.
    pub files_written: u32,
}

/// Writes `/etc/rancher/rke2/config.yaml` and the token files that it refers to, all with mode 0600.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Configure {
    /// Role of the node.
    pub role: Rke2Role,
    /// Contents of `config.yaml`; contains no secret, only the paths `token-file` and `agent-token-file`.
    pub config: String,
    /// Token for [`Rke2Configure::TOKEN_PATH`].
    pub token: SecretRef,
    /// Token for [`Rke2Configure::AGENT_TOKEN_PATH`]; only for servers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_token: Option<SecretRef>,
}

impl Rke2Configure {
    /// File with the join token or the server token.
    pub const TOKEN_PATH: &'static str = "/etc/rancher/rke2/token";
    /// File on a server with the token that agents join with.
    pub const AGENT_TOKEN_PATH: &'static str = "/etc/rancher/rke2/agent-token";
    /// Path of the configuration file.
    pub const CONFIG_PATH: &'static str = "/etc/rancher/rke2/config.yaml";
}

/// Result of [`Rke2Configure`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Configured {
    /// True if any file changed.
    pub changed: bool,
}

/// Enables and starts the role's unit and follows it until it is up, or gives up with evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Start {
    /// Role whose unit to start.
    pub role: Rke2Role,
    /// Journal texts after which waiting longer is pointless.
    pub give_up_on: Vec<GiveUp>,
    /// Number of restarts after which the unit counts as failing. RKE2's unit never reaches `failed` by itself.
    pub restarts_max: u32,
    /// Spans of the journal in which a [`GiveUp`] text does not count; since schema 2.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exceptions: Vec<GiveUpException>,
}

/// A text that ends the wait when the journal repeats it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUp {
    /// Part of the line, compared byte for byte.
    pub text: String,
    /// Number of occurrences since the start that end the wait.
    pub times: u32,
}

/// A span of the journal in which a [`GiveUp`] text does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUpException {
    /// The text of a [`GiveUp`].
    pub text: String,
    /// Part of the span's first line.
    pub from: String,
    /// Part of the first line after the span.
    pub until: String,
}

impl GiveUpException {
    /// Returns true if the span includes `line`; `was_included` is true if it included the previous line.
    pub fn includes(&self, line: &str, was_included: bool) -> bool {
        line.contains(&self.from) || was_included && !line.contains(&self.until)
    }
}

/// Result of [`Rke2Start`]: the unit is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Started {
    /// State of the unit.
    pub unit: UnitReport,
    /// Milliseconds from the start request to `READY=1`; 0 if the unit was up already.
    pub ready_after_ms: u64,
    /// When the unit's main process was started, by the node's clock, also if the unit was up already. If the task has started it, no
    /// earlier kubelet reported in this second. Absent in results of older agents.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<Timestamp>,
    /// On servers: SHA-256 of the cluster's CA file for the K10 token format, 64 hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ca_sha256: Option<String>,
}

/// Stops the role's unit. RKE2 leaves its control plane and the pods running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Stop {
    /// Role whose unit to stop.
    pub role: Rke2Role,
    /// True if RKE2's killall script then ends control plane and pods, too, and the unit does not start at boot; since schema 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kill_all: bool,
}

/// Result of [`Rke2Stop`]: the unit is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Stopped {
    /// True if the unit was running, or if the killall script found something to end.
    pub changed: bool,
}

/// Enables the role's unit at boot and lifts a mask. Starts and stops nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Enable {
    /// Role whose unit to enable.
    pub role: Rke2Role,
}

/// Result of [`Rke2Enable`]: the unit is enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Enabled {
    /// True if the unit was disabled or masked.
    pub changed: bool,
}

/// Observes RKE2 on the node without changing anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Observe {
    /// Role whose unit to observe.
    pub role: Rke2Role,
    /// Files with which to compare those of the node; since schema 2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expected: Option<Rke2Expected>,
}

/// Result of [`Rke2Observe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Observation {
    /// State of the unit; `None` if systemd does not know it.
    pub unit: Option<UnitReport>,
    /// First line of `rke2 --version`, if RKE2 is installed.
    pub version_line: Option<String>,
    /// RKE2 ports with a listener on the node's address.
    pub listening: Vec<u16>,
    /// On servers: SHA-256 of the cluster's CA file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ca_sha256: Option<String>,
    /// Last lines of the unit's journal; empty if the task expected something.
    pub journal: Vec<JournalExcerpt>,
    /// SHA-256 of [`Rke2Configure::CONFIG_PATH`], if it is a regular file that is no longer than a configuration can be.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub config_sha256: Option<String>,
    /// Differences from [`Rke2Observe::expected`], at most [`Rke2Observation::DEVIATIONS_MAX`]; empty if the task expected nothing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub deviations: Vec<Deviation>,
}

impl Rke2Observation {
    /// Most deviations of one node.
    pub const DEVIATIONS_MAX: usize = 32;
}

/// Stores RKE2's admin kubeconfig in the sealed store under an id that the control plane chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2KubeconfigRead {
    /// Id under which to store the kubeconfig.
    pub secret_id: SecretId,
}

/// Result of [`Rke2KubeconfigRead`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2KubeconfigStored {
    /// The stored secret.
    pub secret: SecretRef,
}

/// Removes RKE2 with its uninstall script, which also kills remaining processes, and then what the script left of RKE2's own paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Uninstall {
    /// Files and folders that belong to RKE2 alone; since schema 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl Rke2Uninstall {
    /// Files and folders of RKE2. An agent removes nothing outside of them: a signature alone does not permit it.
    pub const REMOVABLE: [&'static str; 17] = [
        "/etc/cni",
        "/etc/rancher",
        "/etc/systemd/system/rke2-agent.service",
        "/etc/systemd/system/rke2-server.service",
        "/opt/cni",
        "/usr/local/bin/rke2",
        "/usr/local/bin/rke2-killall.sh",
        "/usr/local/bin/rke2-uninstall.sh",
        "/usr/local/lib/systemd/system/rke2-agent.service",
        "/usr/local/lib/systemd/system/rke2-server.service",
        "/usr/local/share/rke2",
        "/var/lib/cni",
        "/var/lib/kubelet",
        "/var/lib/rancher",
        "/var/log/calico",
        "/var/log/containers",
        "/var/log/pods",
    ];

    /// Returns the first path that an uninstall must not remove: one outside of [`Self::REMOVABLE`], or with `.` or `..` in it.
    pub fn foreign_path(&self) -> Option<&str> {
        self.paths.iter().map(String::as_str).find(|path| !is_removable(path))
    }
}

fn is_removable(path: &str) -> bool {
    let is_plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    is_plain
        && Rke2Uninstall::REMOVABLE
            .iter()
            .any(|of| path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Result of [`Rke2Uninstall`]. The script's exit status proves nothing; the residue report shows what remains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Uninstalled {
    /// Exit status of the script; `None` if there was no script.
    pub exit_status: Option<i32>,
    /// Paths and units of RKE2 that existed before, also before an interruption; at most [`Rke2Uninstalled::FOUND_MAX`]. Empty in results
    /// of older agents.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub found: Vec<String>,
    /// Those of `found` that no longer exist.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub removed: Vec<String>,
}

impl Rke2Uninstalled {
    /// Most entries of each list: every one of [`Rke2Uninstall::REMOVABLE`], the paths of a task, and both units.
    pub const FOUND_MAX: usize = 64;
}

impl TaskSpec for Rke2Install {
    const TYPE: TaskType = TaskType::Rke2Install;
    type Result = Rke2Installed;
}
impl TaskSpec for Rke2Configure {
    const TYPE: TaskType = TaskType::Rke2Configure;
    type Result = Rke2Configured;

    fn reads(&self) -> Vec<SecretId> {
        std::iter::once(&self.token).chain(&self.agent_token).map(|secret| secret.secret_id).collect()
    }
}
impl TaskSpec for Rke2Start {
    const TYPE: TaskType = TaskType::Rke2Start;
    const SCHEMA: u32 = 2;
    const ADDED: &'static [(u32, &'static str)] = &[(2, "exceptions")];
    type Result = Rke2Started;
}
impl TaskSpec for Rke2Stop {
    const TYPE: TaskType = TaskType::Rke2Stop;
    const SCHEMA: u32 = 2;
    const ADDED: &'static [(u32, &'static str)] = &[(2, "kill_all")];
    type Result = Rke2Stopped;
}
impl TaskSpec for Rke2Enable {
    const TYPE: TaskType = TaskType::Rke2Enable;
    type Result = Rke2Enabled;
}
impl TaskSpec for Rke2Observe {
    const TYPE: TaskType = TaskType::Rke2Observe;
    const SCHEMA: u32 = 2;
    const ADDED: &'static [(u32, &'static str)] = &[(2, "expected")];
    type Result = Rke2Observation;
}
impl TaskSpec for Rke2KubeconfigRead {
    const TYPE: TaskType = TaskType::Rke2KubeconfigRead;
    type Result = Rke2KubeconfigStored;

    fn deposits(&self) -> Vec<SecretId> {
        vec![self.secret_id]
    }
}
impl TaskSpec for Rke2Uninstall {
    const TYPE: TaskType = TaskType::Rke2Uninstall;
    const SCHEMA: u32 = 2;
    const ADDED: &'static [(u32, &'static str)] = &[(2, "paths")];
    type Result = Rke2Uninstalled;
}
