//! Allocations: a project's exclusive use of a node.

use crate::state::{IllegalTransition, text_enum};

text_enum! {
    /// Lifecycle state of an allocation.
    AllocationState {
        /// Requested; nothing done yet.
        Requested = "requested",
        /// The node is being inspected.
        Provisioning = "provisioning",
        /// A workload can be placed on the node.
        Active = "active",
        /// The node is being cleaned.
        Releasing = "releasing",
        /// Released; the node can be allocated again once it is `active`.
        Released = "released",
        /// The node could not be inspected.
        Failed = "failed",
        /// Cleaning left residue behind; the release can be requested again.
        ReleaseFailed = "release_failed",
    }
}

text_enum! {
    /// Event that changes an [`AllocationState`].
    AllocationEvent {
        /// The inspection started.
        Provision = "provision",
        /// The node was inspected; findings that would block an app are reported separately.
        Passed = "passed",
        /// The node could not be inspected.
        Failed = "failed",
        /// The project released the allocation.
        Release = "release",
        /// The node was proven clean.
        Cleaned = "cleaned",
        /// The node was not proven clean.
        Residue = "residue",
    }
}

impl AllocationState {
    /// Returns true if the project holds the node in this state. The store's index of open allocations lists the same states.
    pub const fn holds_node(self) -> bool {
        match self {
            Self::Requested | Self::Provisioning | Self::Active | Self::Releasing | Self::ReleaseFailed => true,
            Self::Released | Self::Failed => false,
        }
    }

    /// Returns the state after `event`, or an error if the event is illegal in this state.
    pub fn on(self, event: AllocationEvent) -> Result<Self, IllegalTransition> {
        use {AllocationEvent as E, AllocationState as S};
        match (self, event) {
            (S::Requested, E::Provision) => Ok(S::Provisioning),
            (S::Provisioning, E::Passed) => Ok(S::Active),
            (S::Provisioning, E::Failed) => Ok(S::Failed),
            (S::Active | S::ReleaseFailed, E::Release) => Ok(S::Releasing),
            (S::Releasing, E::Cleaned) => Ok(S::Released),
            (S::Releasing, E::Residue) => Ok(S::ReleaseFailed),
            (
                S::Requested | S::Provisioning | S::Active | S::Releasing | S::Released | S::Failed | S::ReleaseFailed,
                event,
            ) => Err(IllegalTransition { what: "allocation", state: self.as_str(), event: event.as_str() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_transitions_of_the_table_exist() {
        let table: Vec<String> = AllocationState::ALL
            .iter()
            .flat_map(|&from| AllocationEvent::ALL.iter().map(move |&event| (from, event, from.on(event))))
            .filter_map(|(from, event, to)| to.ok().map(|to| format!("{from} --{event}--> {to}")))
            .collect();
        assert_eq!(
            table,
            [
                "requested --provision--> provisioning",
                "provisioning --passed--> active",
                "provisioning --failed--> failed",
                "active --release--> releasing",
                "releasing --cleaned--> released",
                "releasing --residue--> release_failed",
                "release_failed --release--> releasing",
            ]
        );
    }
}
