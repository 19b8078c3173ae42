//! The separate fields of a workload's status: lifecycle, phase, health, recovery and progress. The reference platform mixes them in one.

use serde::{Deserialize, Serialize};

use crate::{MemberId, state::text_enum};

text_enum! {
    /// Lifecycle state of a workload.
    Lifecycle {
        /// Accepted; nothing started.
        Requested = "requested",
        /// The first deployment is in progress.
        Deploying = "deploying",
        /// Usable.
        Running = "running",
        /// Being stopped.
        Stopping = "stopping",
        /// Stopped on request.
        Stopped = "stopped",
        /// Being started again.
        Starting = "starting",
        /// Being removed from its nodes.
        Decommissioning = "decommissioning",
        /// Removed; only its records remain.
        Decommissioned = "decommissioned",
        /// Its deployment ended without a usable cluster, or its removal did not end.
        Failed = "failed",
        /// Its deployment or removal was cancelled; parts of it may be on its nodes.
        Cancelled = "cancelled",
    }
}

text_enum! {
    /// Health of a workload or member.
    Health {
        /// In progress; not judged yet.
        Progressing = "progressing",
        /// In the desired state.
        Healthy = "healthy",
        /// Usable, but something deviates from the desired state.
        Degraded = "degraded",
        /// Not usable.
        Failed = "failed",
        /// Nothing to judge: it was removed, or its deployment was cancelled.
        None = "none",
    }
}

text_enum! {
    /// How a workload or member can recover, and who must act.
    Recovery {
        /// Nothing to do.
        None = "none",
        /// The platform repeats the same step.
        Retrying = "retrying",
        /// The platform updates its records, without touching services.
        Reconciling = "reconciling",
        /// The ended operation can be resumed without any other change.
        Resumable = "resumable",
        /// A repair recovers it; a person decides when, because it restarts or reinstalls services.
        RepairAvailable = "repair_available",
        /// A person must look into it, and possibly change something outside the platform, first.
        ManualIntervention = "manual_intervention",
        /// Cannot be recovered; only decommissioning remains.
        Terminal = "terminal",
    }
}

/// An address at which clients reach a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Purpose of the endpoint, defined by the app; [`Endpoint::API`] is the one that users open first.
    pub purpose: String,
    /// Address, for example `https://10.0.0.7:6443`.
    pub address: String,
    /// Member that serves it; `None` if no single member does.
    #[serde(default)]
    pub member: Option<MemberId>,
}

impl Endpoint {
    /// Purpose of the API of the app's cluster.
    pub const API: &str = "api";
}

/// Progress of an operation, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps that succeeded.
    pub completed: u32,
    /// All steps.
    pub total: u32,
}

impl Lifecycle {
    /// Returns true if the workload's cluster may exist on its nodes, so that its allocations are in use.
    pub const fn holds_allocations(self) -> bool {
        match self {
            Self::Decommissioned => false,
            Self::Requested
            | Self::Deploying
            | Self::Running
            | Self::Stopping
            | Self::Stopped
            | Self::Starting
            | Self::Decommissioning
            | Self::Failed
            | Self::Cancelled => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_its_allocations_until_it_is_decommissioned() {
        let freed = Lifecycle::ALL.iter().copied().filter(|lifecycle| !lifecycle.holds_allocations());
        assert_eq!(freed.collect::<Vec<_>>(), [Lifecycle::Decommissioned]);
    }
}
