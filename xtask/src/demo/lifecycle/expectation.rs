//! What must be true of the workload after each step.

use std::time::Duration;

use serde::Serialize;

/// Nodes of the demo.
pub(super) const NODES: [&str; 4] = ["demo-1", "demo-2", "demo-3", "demo-4"];
/// Interval of observations while something settles.
pub(super) const POLL_EVERY: Duration = Duration::from_millis(200);

/// One kind of verification. Every step is verified in each aspect that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aspect {
    /// Lifecycle and health of workload and members, and whether the units of the members run.
    Members,
    /// The KubeNodes and whether they are Ready; of a stopped cluster, that it does not answer.
    Nodes,
    /// Which KubeNodes take new pods.
    Cordons,
    /// The label that the tenant's settings give every KubeNode.
    Labels,
    /// The Deployment's pods run where they may, and the DaemonSet's on every node.
    Pods,
    /// The delivered kubeconfig acts as its own ServiceAccount.
    Access,
    /// Units start at boot, and files are the platform's.
    Files,
    /// Nothing runs on the nodes of a stopped workload.
    Processes,
    /// Nothing is left on nodes without a member.
    Residue,
}

impl Aspect {
    pub(super) const ALL: [Self; 9] = [
        Self::Members,
        Self::Nodes,
        Self::Cordons,
        Self::Labels,
        Self::Pods,
        Self::Access,
        Self::Files,
        Self::Processes,
        Self::Residue,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Nodes => "nodes",
            Self::Cordons => "cordons",
            Self::Labels => "labels",
            Self::Pods => "pods",
            Self::Access => "access",
            Self::Files => "files",
            Self::Processes => "processes",
            Self::Residue => "residue",
        }
    }

    /// Returns true if a workload in this state is verified in this aspect.
    pub(super) const fn applies_to(self, lifecycle: Lifecycle) -> bool {
        match self {
            Self::Members | Self::Residue => true,
            Self::Nodes => !matches!(lifecycle, Lifecycle::Decommissioned),
            Self::Cordons | Self::Labels | Self::Pods | Self::Access | Self::Files => {
                matches!(lifecycle, Lifecycle::Running)
            }
            Self::Processes => matches!(lifecycle, Lifecycle::Stopped),
        }
    }
}

/// State of the workload between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    Running,
    Stopped,
    Decommissioned,
}

impl Lifecycle {
    /// Returns lifecycle and health in the API's words.
    pub(super) const fn in_api(self) -> &'static str {
        match self {
            Self::Running => "running, healthy",
            Self::Stopped => "stopped, healthy",
            Self::Decommissioned => "decommissioned, none",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Agent,
}

impl Role {
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Server => "rke2-server",
            Self::Agent => "rke2-agent",
        }
    }
}

/// A member that must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedMember {
    pub(super) node: &'static str,
    pub(super) role: Role,
    /// True if it was drained, and takes no pods of the Deployment.
    pub(super) drained: bool,
}

/// What must be true.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) lifecycle: Lifecycle,
    pub(super) members: Vec<ExpectedMember>,
    /// Number of ready pods of the Deployment.
    pub(super) replicas: usize,
    /// Node that must run at least one of them: new pods go to the node that runs the fewest.
    pub(super) busy: Option<&'static str>,
    /// Pods that must be ready again under the same names, as after a stop and start.
    pub(super) kept: Vec<String>,
    /// Configuration file of a node as the platform wrote it.
    pub(super) config: Option<(&'static str, String)>,
}

impl Expected {
    /// Returns what is true of a workload with these members whose Deployment has `replicas` pods.
    pub(super) fn running(server: &'static str, agent: &'static str, replicas: usize) -> Self {
        let member = |node, role| ExpectedMember { node, role, drained: false };
        Self {
            lifecycle: Lifecycle::Running,
            members: vec![member(server, Role::Server), member(agent, Role::Agent)],
            replicas,
            busy: None,
            kept: Vec::new(),
            config: None,
        }
    }

    pub(super) fn add(&mut self, node: &'static str) {
        self.members.push(ExpectedMember { node, role: Role::Agent, drained: false });
    }

    pub(super) fn remove(&mut self, node: &str) {
        self.members.retain(|member| member.node != node);
    }

    pub(super) fn set_drained(&mut self, node: &str, drained: bool) {
        for member in self.members.iter_mut().filter(|member| member.node == node) {
            member.drained = drained;
        }
    }

    pub(super) fn member(&self, node: &str) -> Option<&ExpectedMember> {
        self.members.iter().find(|member| member.node == node)
    }

    /// Returns the role of the member on a node; `None` for a node without a member.
    pub(super) fn role(&self, node: &str) -> Option<Role> {
        self.member(node).map(|member| member.role)
    }
}
