//! Durable operations and their steps.

use crate::state::text_enum;

text_enum! {
    /// What an operation is for.
    OperationKind {
        /// The first deployment.
        Deploy = "deploy",
        /// One more member.
        AddMember = "add_member",
        /// Moves work off a member.
        DrainMember = "drain_member",
        /// Takes a member out.
        RemoveMember = "remove_member",
        /// Puts another node in a member's place.
        ReplaceMember = "replace_member",
        /// Stops the app's services.
        Stop = "stop",
        /// Starts them again.
        Start = "start",
        /// Brings records back in line; never restarts anything.
        Reconcile = "reconcile",
        /// Restarts or reinstalls within a declared scope.
        Repair = "repair",
        /// Another version.
        Upgrade = "upgrade",
        /// Saves the app's state.
        Snapshot = "snapshot",
        /// Brings a saved state back.
        Restore = "restore",
        /// Renews the app's certificates.
        RotateCertificates = "rotate_certificates",
        /// Removes the app from its nodes.
        Decommission = "decommission",
    }
}

text_enum! {
    /// Where an operation is.
    OperationState {
        /// Accepted, no step begun.
        Queued = "queued",
        /// A step runs.
        Running = "running",
        /// No step runs; one will, at a known time or on a known event.
        Waiting = "waiting",
        /// Every step succeeded.
        Succeeded = "succeeded",
        /// Ended without its purpose, and nothing can be resumed.
        Failed = "failed",
        /// Ended because somebody asked for it.
        Cancelled = "cancelled",
        /// Ended with something that a person decides; frees the workload for the next operation.
        NeedsAttention = "needs_attention",
    }
}

text_enum! {
    /// Where a step is.
    StepState {
        /// Waits for the steps it needs.
        Pending = "pending",
        /// An attempt is under way.
        Running = "running",
        /// An attempt failed; the next starts when its backoff ends.
        Backoff = "backoff",
        /// Done, and never done again.
        Succeeded = "succeeded",
        /// Will not be tried again in this operation.
        Failed = "failed",
        /// Never run, because something it needed failed or the operation was cancelled.
        Skipped = "skipped",
        /// Ended by a cancellation.
        Cancelled = "cancelled",
    }
}

impl OperationState {
    /// Whether nothing more will happen in it.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::NeedsAttention => true,
        }
    }
}

impl StepState {
    /// Whether nothing more will happen in it.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Backoff => false,
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_open_until_it_ended_in_one_way_or_another_and_so_is_a_step() {
        let open = OperationState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(
            open.collect::<Vec<_>>(),
            [OperationState::Queued, OperationState::Running, OperationState::Waiting]
        );
        let open = StepState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(open.collect::<Vec<_>>(), [StepState::Pending, StepState::Running, StepState::Backoff]);
    }
}
