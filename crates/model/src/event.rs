//! Events: the append-only story that clients stream.

use std::fmt;

use crate::{ProjectId, state::text_enum};

/// A sequence of events of its own. Nodes belong to no project and write to the platform's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamName {
    /// Replicas, nodes, enrollment, artifacts, projects.
    Platform,
    /// All that happens to one project.
    Project(ProjectId),
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("platform"),
            Self::Project(id) => write!(f, "project/{id}"),
        }
    }
}

impl std::str::FromStr for StreamName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "platform" {
            return Ok(Self::Platform);
        }
        let id = text.strip_prefix("project/").ok_or_else(|| format!("{text:?} is no event stream"))?;
        id.parse().map(Self::Project).map_err(|error: crate::IdParseError| error.to_string())
    }
}

text_enum! {
    /// Every kind of event. `noun.past_participle`.
    EventKind {
        /// A control-plane process joined.
        ReplicaJoined = "replica.joined",
        /// A control-plane process left in order.
        ReplicaLeft = "replica.left",
        /// A control-plane process was found dead; the others took over.
        ReplicaLost = "replica.lost",
        /// A project was created.
        ProjectCreated = "project.created",
        /// A token was issued.
        TokenCreated = "token.created",
        /// A token was withdrawn.
        TokenRevoked = "token.revoked",
        /// A service account was made.
        ServiceAccountCreated = "service_account.created",
        /// A service account was deleted, and its tokens with it.
        ServiceAccountDeleted = "service_account.deleted",
        /// A task-signing key came to another state.
        SigningKeyStateChanged = "signing_key.state_changed",
        /// A next sealing key was taken, put into use, or is the only one in use.
        SealingKeyStateChanged = "sealing_key.state_changed",
        /// A certificate authority came to another state.
        AuthorityStateChanged = "authority.state_changed",
        /// A row was refused because nothing proves that the platform wrote it: somebody else writes to the database.
        RowForged = "row.forged",
        /// A node was registered.
        NodeRegistered = "node.registered",
        /// A node's agent got its identity.
        NodeEnrolled = "node.enrolled",
        /// An enrollment token was issued.
        NodeEnrollmentIssued = "node.enrollment_issued",
        /// A node became usable.
        NodeActivated = "node.activated",
        /// A node's lifecycle changed otherwise.
        NodeStateChanged = "node.state_changed",
        /// A node's channel came, went quiet or was lost.
        NodeConnectivityChanged = "node.connectivity_changed",
        /// A node's clock went further from the control plane's than the limit, or came back within it.
        NodeClockSkewChanged = "node.clock_skew_changed",
        /// A node's agent takes no tasks, or takes them again.
        NodeAgentProblemChanged = "node.agent_problem_changed",
        /// A node told what it is and whether it is fit.
        NodeInspected = "node.inspected",
        /// A safe fix was carried out on a node.
        NodeFixed = "node.fixed",
        /// A node came back on another machine, or its machine got another id.
        NodeMachineChanged = "node.machine_changed",
        /// Two live connections used one identity; the newer was refused.
        NodeIdentityCloned = "node.identity_cloned",
        /// An artifact was imported and verified.
        ArtifactImported = "artifact.imported",
        /// An allocation changed state.
        AllocationChanged = "allocation.changed",
        /// A workload was accepted.
        WorkloadRequested = "workload.requested",
        /// Lifecycle, phase, health or recovery of a workload changed.
        WorkloadChanged = "workload.changed",
        /// A member changed state or health.
        MemberChanged = "member.changed",
        /// An operation began.
        OperationStarted = "operation.started",
        /// An operation ended.
        OperationEnded = "operation.ended",
        /// A step began, failed, waits or succeeded.
        StepChanged = "step.changed",
        /// A task was recorded, sent, or ended.
        TaskChanged = "task.changed",
        /// A node reported progress inside a task.
        TaskProgressed = "task.progressed",
        /// Access to a cluster was delivered.
        AccessDelivered = "access.delivered",
        /// Access to a cluster was withdrawn.
        AccessRevoked = "access.revoked",
    }
}
