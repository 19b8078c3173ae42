//! What describes a switch: when its fault strikes, on which role, what it logs, and which action cures the failure that it imitates.

use camino::Utf8PathBuf;

use super::line::Line;
use crate::settings::Role;

/// One fault that can be switched on.
pub(super) struct Switch {
    /// The name in the faults file.
    pub(super) name: &'static str,
    /// The row of the survey of public failures; none for failures that it lacks.
    pub(super) row: Option<u8>,
    pub(super) stage: Stage,
    pub(super) roles: Roles,
    pub(super) cure: Cure,
    /// The failure in words.
    pub(super) about: &'static str,
    pub(super) script: fn(&Facts) -> Script,
}

/// When a fault strikes, which decides how the unit behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before anything starts.
    Start,
    /// While an agent verifies its server's CA.
    Validate,
    /// As [`Stage::Validate`], but only for the first attempts.
    Unstable,
    /// While the agent part of a node, which every server has too, gets its configuration from the server.
    Retrieve,
    /// While etcd and the apiserver start.
    ControlPlane,
    /// After the join, in place of the kubelet.
    Joined,
    /// When the node is ready: readiness is not reported.
    Silent,
    /// When the node is ready: its KubeNode is not.
    Network,
    /// [`super::LATER`] after the node reported its readiness.
    Later,
}

impl Stage {
    /// Every stage.
    #[cfg(test)]
    pub(super) const ALL: [Self; 9] = [
        Self::Start,
        Self::Validate,
        Self::Unstable,
        Self::Retrieve,
        Self::ControlPlane,
        Self::Joined,
        Self::Silent,
        Self::Network,
        Self::Later,
    ];

    /// What the unit does, in words.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Start => "exits 1, loops in `auto-restart`",
            Self::Validate | Self::Retrieve | Self::ControlPlane | Self::Joined => "`activating` without end",
            Self::Silent => "`activating` without end, KubeNode Ready",
            Self::Unstable => "`active` after some attempts",
            Self::Network => "`active`, KubeNode not Ready",
            Self::Later => "`active`, fails later",
        }
    }
}

/// The roles whose nodes can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roles {
    Any,
    Server,
    Agent,
}

impl Roles {
    /// Whether a node of this role can have the fault.
    pub(super) const fn include(self, role: Role) -> bool {
        match (self, role) {
            (Self::Any, _) | (Self::Server, Role::Server) | (Self::Agent, Role::Agent) => true,
            (Self::Server, Role::Agent) | (Self::Agent, Role::Server) => false,
        }
    }

    /// The roles in words.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Any => "both",
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

/// The action that cures the imitated failure. The switch itself ends when its name is removed from the file and the unit starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// A restart of the unit.
    Restart,
    /// The kill-all script, then a start.
    KillAll,
    /// The configuration written again, then a restart.
    Configuration,
    /// An uninstall, which removes the data of the earlier cluster, then an installation.
    Reinstall,
    /// The deletion of the KubeNode, which deletes its node password.
    KubeNode,
    /// An operator's work on the machine or its network.
    Operator(&'static str),
}

impl Cure {
    /// The action in words.
    pub(super) fn text(self) -> String {
        match self {
            Self::Restart => "restart".to_owned(),
            Self::KillAll => "killall, then start".to_owned(),
            Self::Configuration => "configuration written again".to_owned(),
            Self::Reinstall => "reinstall".to_owned(),
            Self::KubeNode => "deletion of the KubeNode".to_owned(),
            Self::Operator(what) => format!("operator: {what}"),
        }
    }
}

/// What a fault does at its stage.
pub(super) enum Script {
    /// Logs `before`, then ends the program with `fatal`.
    Exits { before: Vec<Line>, fatal: String },
    /// The reason with which every attempt at this stage fails.
    Refuses(String),
    /// Logs these lines again and again.
    Repeats(Vec<Line>),
    /// Logs nothing.
    Silent,
}

/// What the lines contain of this node.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) role: Role,
    pub(super) node_name: String,
    pub(super) address: String,
    /// `host:port` of the supervisor that the node joins; a server's own for a server.
    pub(super) server: String,
    pub(super) data_dir: Utf8PathBuf,
    /// The hash in the node's token, or a placeholder for a token without one.
    pub(super) ca_hash: String,
}
