//! The five separate fields that say how a workload is; the reference platform mixed them, which is why they are five here.

use serde::{Deserialize, Serialize};

use crate::state::text_enum;

text_enum! {
    /// Where a workload is in its life.
    Lifecycle {
        /// Accepted, nothing started.
        Requested = "requested",
        /// Its first deployment is under way.
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
        /// Its deployment ended without a usable cluster.
        Failed = "failed",
    }
}

text_enum! {
    /// How a workload or member is.
    Health {
        /// On its way; no judgement yet.
        Progressing = "progressing",
        /// As it should be.
        Healthy = "healthy",
        /// Usable, but something is not as it should be.
        Degraded = "degraded",
        /// Not usable.
        Failed = "failed",
    }
}

text_enum! {
    /// What can be done about it, and by whom.
    Recovery {
        /// Nothing needs doing.
        None = "none",
        /// The platform repeats the same step.
        Retrying = "retrying",
        /// The platform brings records back in line, without touching services.
        Reconciling = "reconciling",
        /// A person may choose a repair that the platform then carries out.
        RepairAvailable = "repair_available",
        /// A person must do something outside the platform first.
        ManualIntervention = "manual_intervention",
        /// Beyond saving; decommission is what remains.
        Terminal = "terminal",
    }
}

/// How many of an operation's steps are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps that succeeded.
    pub completed: u32,
    /// Steps there are.
    pub total: u32,
}

impl Lifecycle {
    /// Whether a cluster of this workload may exist on its nodes, so that its allocations are in use.
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
            | Self::Failed => true,
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
