//! Durable operations and their steps.

use crate::state::text_enum;

text_enum! {
    /// Purpose of an operation.
    OperationKind {
        /// First deployment of the app.
        Deploy = "deploy",
        /// Adds one member.
        AddMember = "add_member",
        /// Moves work off a member and keeps new work away.
        DrainMember = "drain_member",
        /// Lets a drained member accept work again.
        UncordonMember = "uncordon_member",
        /// Removes a member.
        RemoveMember = "remove_member",
        /// Replaces a member's node with another.
        ReplaceMember = "replace_member",
        /// Stops the app's services.
        Stop = "stop",
        /// Starts the app's services again.
        Start = "start",
        /// Updates the platform's records; never restarts anything.
        Reconcile = "reconcile",
        /// Restarts or reinstalls within a declared scope.
        Repair = "repair",
        /// Changes the app's version.
        Upgrade = "upgrade",
        /// Saves the app's state.
        Snapshot = "snapshot",
        /// Restores a saved state.
        Restore = "restore",
        /// Renews the app's certificates.
        RotateCertificates = "rotate_certificates",
        /// Removes the app from its nodes.
        Decommission = "decommission",
    }
}

impl OperationKind {
    /// Returns the command of a kind that has a request of its own in the API. No general request starts it.
    pub const fn own_command(self) -> Option<&'static str> {
        match self {
            Self::Deploy => Some("gpuaas workload deploy --help"),
            Self::AddMember => Some("gpuaas workload add-member --help"),
            Self::Decommission => Some("gpuaas workload decommission --help"),
            Self::DrainMember
            | Self::UncordonMember
            | Self::RemoveMember
            | Self::ReplaceMember
            | Self::Stop
            | Self::Start
            | Self::Reconcile
            | Self::Repair
            | Self::Upgrade
            | Self::Snapshot
            | Self::Restore
            | Self::RotateCertificates => None,
        }
    }
}

/// Something that can be requested of a workload as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadAction {
    /// Starts an operation of this kind.
    Start(OperationKind),
    /// Repeats the newest operation, which ended without success.
    Resume,
    /// Ends the open operation.
    Cancel,
}

impl WorkloadAction {
    /// Returns every action: the kinds of operations in the order of their declaration, and then the others.
    pub fn all() -> impl Iterator<Item = Self> {
        OperationKind::ALL.iter().copied().map(Self::Start).chain([Self::Resume, Self::Cancel])
    }

    /// Returns the spelling of this action.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start(kind) => kind.as_str(),
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

text_enum! {
    /// State of an operation.
    OperationState {
        /// Accepted; no step started.
        Queued = "queued",
        /// A step is running.
        Running = "running",
        /// No step is running; one will start at a known time or event.
        Waiting = "waiting",
        /// Every step succeeded.
        Succeeded = "succeeded",
        /// Ended without success; a later operation of the workload took its place, so nobody has to act on it.
        Failed = "failed",
        /// Ended by a cancellation.
        Cancelled = "cancelled",
        /// Ended with a problem that a person must decide on; the workload is free for the next operation.
        NeedsAttention = "needs_attention",
    }
}

text_enum! {
    /// State of a step.
    StepState {
        /// Waiting for the steps it depends on.
        Pending = "pending",
        /// An attempt is running.
        Running = "running",
        /// An attempt failed; the next one starts when the backoff ends.
        Backoff = "backoff",
        /// Done; never runs again.
        Succeeded = "succeeded",
        /// Failed; not retried in this operation.
        Failed = "failed",
        /// Never ran, because a dependency failed or the operation was cancelled.
        Skipped = "skipped",
        /// Ended by a cancellation.
        Cancelled = "cancelled",
    }
}

impl OperationState {
    /// Returns true if the operation has ended.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::NeedsAttention => true,
        }
    }
}

impl StepState {
    /// Returns true if the step has ended.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Backoff => false,
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_action_has_a_spelling_of_its_own() {
        let spellings: BTreeSet<&str> = WorkloadAction::all().map(WorkloadAction::as_str).collect();
        assert_eq!(spellings.len(), OperationKind::ALL.len() + 2);
    }

    #[test]
    fn operations_and_steps_are_open_until_a_final_state() {
        let open = OperationState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(
            open.collect::<Vec<_>>(),
            [OperationState::Queued, OperationState::Running, OperationState::Waiting]
        );
        let open = StepState::ALL.iter().copied().filter(|state| !state.is_final());
        assert_eq!(open.collect::<Vec<_>>(), [StepState::Pending, StepState::Running, StepState::Backoff]);
    }
}
