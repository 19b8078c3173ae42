//! A project's hold on a node.

use crate::state::{IllegalTransition, text_enum};

text_enum! {
    /// Where an allocation is in its life.
    AllocationState {
        /// Asked for, nothing done yet.
        Requested = "requested",
        /// Its node is being inspected.
        Provisioning = "provisioning",
        /// A workload may be placed on it.
        Active = "active",
        /// Being cleaned for its return.
        Releasing = "releasing",
        /// Given back; its node may be allocated again once it is `active`.
        Released = "released",
        /// Its node could not be inspected.
        Failed = "failed",
        /// Cleaning left something behind; the release can be asked for again.
        ReleaseFailed = "release_failed",
    }
}

text_enum! {
    /// What happens to an allocation.
    AllocationEvent {
        /// The inspection starts.
        Provision = "provision",
        /// The node was inspected; what blocks an app there is told beside it.
        Passed = "passed",
        /// The node could not be inspected.
        Failed = "failed",
        /// The project gives it back.
        Release = "release",
        /// Cleaning is proven.
        Cleaned = "cleaned",
        /// Cleaning is not proven.
        Residue = "residue",
    }
}

impl AllocationState {
    /// Whether the project holds the node in this state. The store's index of open allocations lists the same states.
    pub const fn holds_node(self) -> bool {
        match self {
            Self::Requested | Self::Provisioning | Self::Active | Self::Releasing | Self::ReleaseFailed => true,
            Self::Released | Self::Failed => false,
        }
    }

    /// The state after `event`, or why that event cannot happen here.
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
