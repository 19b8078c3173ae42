//! Tasks about RKE2 on one node. Paths and unit names are RKE2's own.

use gpuaas_model::{SecretId, TaskType, Timestamp};
use serde::{Deserialize, Serialize};

use super::{ArtifactRef, SecretRef, TaskSpec};

/// Which of RKE2's two services a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rke2Role {
    /// `rke2-server.service`.
    Server,
    /// `rke2-agent.service`.
    Agent,
}

impl Rke2Role {
    /// The unit's name.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Server => "rke2-server.service",
            Self::Agent => "rke2-agent.service",
        }
    }
}

/// Lays a fetched release out as its own install script would, without running that script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Install {
    /// The release, for example `v1.36.3+rke2r1`.
    pub version: String,
    /// `rke2.linux-amd64.tar.gz`.
    pub archive: ArtifactRef,
    /// Image archives for `/var/lib/rancher/rke2/agent/images`.
    pub images: Vec<ArtifactRef>,
}

/// What was laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Installed {
    /// First line of `rke2 --version`.
    pub version_line: String,
    /// Files written now; 0 when all were in place.
    pub files_written: u32,
}

/// Writes `/etc/rancher/rke2/config.yaml` and the token files it names, all 0600.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Configure {
    /// The role it is for.
    pub role: Rke2Role,
    /// The whole `config.yaml`; holds no secret, only `token-file` and `agent-token-file`.
    pub config: String,
    /// Goes to [`Rke2Configure::TOKEN_PATH`].
    pub token: SecretRef,
    /// Goes to [`Rke2Configure::AGENT_TOKEN_PATH`]; servers only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_token: Option<SecretRef>,
}

impl Rke2Configure {
    /// Where the join or server token lies.
    pub const TOKEN_PATH: &'static str = "/etc/rancher/rke2/token";
    /// Where a server keeps the token that agents join with.
    pub const AGENT_TOKEN_PATH: &'static str = "/etc/rancher/rke2/agent-token";
    /// The configuration.
    pub const CONFIG_PATH: &'static str = "/etc/rancher/rke2/config.yaml";
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Configured {
    /// Whether any file changed.
    pub changed: bool,
}

/// Enables and starts the role's unit and follows its signals until it is up, or gives up with evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Start {
    /// Which unit.
    pub role: Rke2Role,
    /// Journal texts that mean waiting longer is pointless.
    pub give_up_on: Vec<GiveUp>,
    /// Restarts of the unit after which it counts as failing: RKE2's unit never reaches `failed` by itself.
    pub restarts_max: u32,
    /// Spans of the journal in which a text to give up on does not count; since schema 2.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exceptions: Vec<GiveUpException>,
}

/// A text whose repeated appearance in the journal ends the wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUp {
    /// A part of the line, compared byte for byte.
    pub text: String,
    /// How often it must be seen since the start.
    pub times: u32,
}

/// A span of the journal in which a text to give up on does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUpException {
    /// The text of a [`GiveUp`].
    pub text: String,
    /// Part of the span's first line.
    pub from: String,
    /// Part of the first line behind the span.
    pub until: String,
}

impl GiveUpException {
    /// Whether the span includes this line, given whether it included the line before.
    pub fn includes(&self, line: &str, held: bool) -> bool {
        line.contains(&self.from) || held && !line.contains(&self.until)
    }
}

/// The unit is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Started {
    /// How the unit is.
    pub unit: UnitReport,
    /// From the start order to READY=1, in milliseconds; 0 when it was up already.
    pub ready_after_ms: u64,
    /// Servers: SHA-256 of the cluster's CA file as the K10 token form wants it, 64 hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ca_sha256: Option<String>,
}

/// Stops the role's unit. RKE2 leaves its control plane and pods running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Stop {
    /// Which unit.
    pub role: Rke2Role,
}

/// The unit is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Stopped {
    /// Whether it ran before.
    pub changed: bool,
}

/// Looks, without changing anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Observe {
    /// Which unit.
    pub role: Rke2Role,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Observation {
    /// How the unit is; `None` when the system does not know it.
    pub unit: Option<UnitReport>,
    /// First line of `rke2 --version`, when installed.
    pub version_line: Option<String>,
    /// Which of RKE2's ports something listens on at the node's address.
    pub listening: Vec<u16>,
    /// Servers: SHA-256 of the cluster's CA file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ca_sha256: Option<String>,
    /// The last lines of the unit's journal.
    pub journal: Vec<JournalExcerpt>,
}

/// Puts the distribution's own admin kubeconfig into the sealed store under an id chosen by the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2KubeconfigRead {
    /// Where it goes.
    pub secret_id: SecretId,
}

/// It is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2KubeconfigStored {
    /// What was stored.
    pub secret: SecretRef,
}

/// Removes RKE2 by its own script, which also kills what still runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Uninstall {}

/// The script ran. Its exit code proves nothing: the residue report does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rke2Uninstalled {
    /// Exit status of the script; `None` when there was no script to run.
    pub exit_status: Option<i32>,
}

/// A unit as systemd describes it. `active` alone never tells: RKE2's unit loops in `activating` and never reaches `failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitReport {
    /// The unit.
    pub unit: String,
    /// systemd's ActiveState.
    pub active: String,
    /// systemd's SubState.
    pub sub: String,
    /// systemd's Result.
    pub result: String,
    /// systemd's NRestarts.
    pub n_restarts: u32,
    /// systemd's ExecMainStatus.
    pub exec_main_status: i32,
    /// Since when it is in this state.
    pub since: Timestamp,
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalExcerpt {
    /// When.
    pub at: Timestamp,
    /// The line, cut to 1,024 bytes.
    pub text: String,
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
    type Result = Rke2Stopped;
}
impl TaskSpec for Rke2Observe {
    const TYPE: TaskType = TaskType::Rke2Observe;
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
    type Result = Rke2Uninstalled;
}
