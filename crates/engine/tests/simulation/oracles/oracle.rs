//! The names of the oracles.

use std::fmt;

/// Something that must hold in every seed. A failing seed is shrunk as long as the same oracle fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oracle {
    /// The run ends, and nothing in it panics, blocks or is refused that the simulation relies on.
    Run,
    /// A deployment ends as its project asked for.
    Ending,
    /// At most one operation of a workload is open, and only the newest needs attention.
    Mutations,
    /// No allocation has two members, and none is released while a member uses it.
    Allocations,
    /// No node of a released allocation has residue.
    Residue,
    /// No terminal state is left, and nothing stays under way without an operation.
    TerminalStates,
    /// Only legal transitions happen.
    Transitions,
    /// Streams have no gaps, and events agree with the rows.
    Events,
    /// The start and the end of every task are audited, and the chain of the audit is intact.
    Audit,
    /// Everything that waits or has failed explains why and names the next action.
    Explained,
    /// Completed effects are not repeated.
    Effects,
    /// Steps run in the order of their plan.
    Order,
    /// Nothing begins after a cancellation was requested.
    Cancellation,
    /// Tasks are signed under the present fence of their node.
    Fences,
    /// Only the holder of a lease writes, and every lease ends.
    Leases,
    /// Sessions end with their connections and replicas.
    Sessions,
    /// No member is removed against a PodDisruptionBudget.
    Budgets,
    /// The plan that runs is the one that a person has seen.
    Digests,
    /// Only reports about the present generation count.
    Reports,
    /// The workload's health follows from its members.
    Status,
    /// The platform corrects the drift that it was hinted of, or says that it cannot, and bounds its reconciliations.
    Drift,
    /// What the cluster shows of a member is judged, beside what its node and its unit show.
    Judgments,
    /// No secret outlives its workload.
    Secrets,
    /// What reaches or leaves a node belongs to the project that holds it.
    Isolation,
    /// Backups restore every row.
    Backups,
    /// Nothing is lost that retention keeps or archives.
    History,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Run => "run",
            Self::Ending => "ending",
            Self::Mutations => "mutations",
            Self::Allocations => "allocations",
            Self::Residue => "residue",
            Self::TerminalStates => "terminal states",
            Self::Transitions => "transitions",
            Self::Events => "events",
            Self::Audit => "audit",
            Self::Explained => "explained",
            Self::Effects => "effects",
            Self::Order => "order",
            Self::Cancellation => "cancellation",
            Self::Fences => "fences",
            Self::Leases => "leases",
            Self::Sessions => "sessions",
            Self::Budgets => "budgets",
            Self::Digests => "digests",
            Self::Reports => "reports",
            Self::Status => "status",
            Self::Drift => "drift",
            Self::Judgments => "judgments",
            Self::Secrets => "secrets",
            Self::Isolation => "isolation",
            Self::Backups => "backups",
            Self::History => "history",
        })
    }
}

/// Something that did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) oracle: Oracle,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.oracle, self.what)
    }
}
