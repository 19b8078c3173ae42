//! Events: the append-only history that clients stream.

use std::fmt;

use crate::{ProjectId, state::text_enum};

/// An ordered event stream. Nodes belong to no project; their events are in the platform's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamName {
    /// Events of replicas, nodes, enrollment, artifacts, projects, credentials and sessions.
    Platform,
    /// All events of one project. Those of its credentials and sessions have no data, and every import of a release is among them.
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
        let id = text.strip_prefix("project/").ok_or_else(|| format!("{text:?} is not an event stream"))?;
        id.parse().map(Self::Project).map_err(|error: crate::IdParseError| error.to_string())
    }
}

text_enum! {
    /// Every kind of event, named `noun.past_participle`.
    EventKind {
        /// A control-plane process joined.
        ReplicaJoined = "replica.joined",
        /// A control-plane process shut down in order.
        ReplicaLeft = "replica.left",
        /// A control-plane process was lost; the others took over.
        ReplicaLost = "replica.lost",
        /// A project was created.
        ProjectCreated = "project.created",
        /// A project was deleted.
        ProjectDeleted = "project.deleted",
        /// A token was issued.
        TokenCreated = "token.created",
        /// A token was revoked.
        TokenRevoked = "token.revoked",
        /// A browser signed in.
        SessionCreated = "session.created",
        /// A browser signed out, or its session was revoked.
        SessionRevoked = "session.revoked",
        /// A one-time sign-in link was issued.
        SignInLinkCreated = "sign_in_link.created",
        /// A service account was created.
        ServiceAccountCreated = "service_account.created",
        /// A service account and its tokens were deleted.
        ServiceAccountDeleted = "service_account.deleted",
        /// A task-signing key changed state.
        SigningKeyStateChanged = "signing_key.state_changed",
        /// A next sealing key was loaded or activated, or became the only one in use.
        SealingKeyStateChanged = "sealing_key.state_changed",
        /// A certificate authority changed state.
        AuthorityStateChanged = "authority.state_changed",
        /// A row was refused because no valid proof shows that the platform wrote it: another writer changes the database.
        RowForged = "row.forged",
        /// A node was registered.
        NodeRegistered = "node.registered",
        /// A node's agent enrolled and received its certificate.
        NodeEnrolled = "node.enrolled",
        /// An enrollment token was issued.
        NodeEnrollmentIssued = "node.enrollment_issued",
        /// A node became usable.
        NodeActivated = "node.activated",
        /// A node changed to any other lifecycle state.
        NodeStateChanged = "node.state_changed",
        /// A retired node was deleted.
        NodeDeleted = "node.deleted",
        /// A node's channel connected, became stale or was lost.
        NodeConnectivityChanged = "node.connectivity_changed",
        /// A node's clock skew exceeded the limit, or returned to within it.
        NodeClockSkewChanged = "node.clock_skew_changed",
        /// A node's agent stopped accepting tasks, or accepts them again.
        NodeAgentProblemChanged = "node.agent_problem_changed",
        /// A node reported its inventory and its fitness.
        NodeInspected = "node.inspected",
        /// A safe fix was carried out on a node.
        NodeFixed = "node.fixed",
        /// A node appeared on another machine, or its machine id changed.
        NodeMachineChanged = "node.machine_changed",
        /// Two live connections used one identity; the newer one was refused.
        NodeIdentityCloned = "node.identity_cloned",
        /// An artifact was imported and verified.
        ArtifactImported = "artifact.imported",
        /// An allocation changed state.
        AllocationChanged = "allocation.changed",
        /// A workload was accepted.
        WorkloadRequested = "workload.requested",
        /// A workload's lifecycle, phase, health or recovery changed.
        WorkloadChanged = "workload.changed",
        /// A workload's controller reported something new.
        WorkloadReported = "workload.reported",
        /// A member changed state or health.
        MemberChanged = "member.changed",
        /// An operation began.
        OperationStarted = "operation.started",
        /// A person requested the cancellation of an operation. The operation ends as soon as its running steps have ended.
        OperationCancelRequested = "operation.cancel_requested",
        /// An operation ended.
        OperationEnded = "operation.ended",
        /// An operation that needed attention is `failed`, because a later one took its place.
        OperationSuperseded = "operation.superseded",
        /// A step started, failed, waits or succeeded.
        StepChanged = "step.changed",
        /// A task was recorded, sent or ended.
        TaskChanged = "task.changed",
        /// Access to a cluster was delivered.
        AccessDelivered = "access.delivered",
        /// Access to a cluster was revoked.
        AccessRevoked = "access.revoked",
    }
}
