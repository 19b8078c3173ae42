//! Nodes: their lifecycle and, separately, their connectivity.

use std::fmt;

use crate::{
    NodeId,
    state::{IllegalTransition, text_enum},
};

/// A node in one enrollment. State bound to it becomes invalid at the next enrollment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnrolledNode {
    /// The node.
    pub node: NodeId,
    /// The enrollment epoch.
    pub epoch: u64,
}

impl fmt::Display for EnrolledNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {})", self.node, self.epoch)
    }
}

text_enum! {
    /// Lifecycle state of a node. The Kubernetes object is called KubeNode throughout the code.
    NodeState {
        /// Registered by name; has no identity yet.
        Registered = "registered",
        /// The agent has a certificate but has not connected to the channel yet.
        Enrolled = "enrolled",
        /// May be allocated.
        Active = "active",
        /// A tenant had root here: the node's reports are not trusted until it is reimaged.
        NeedsReimage = "needs_reimage",
        /// Removed permanently.
        Retired = "retired",
    }
}

text_enum! {
    /// Event that changes a [`NodeState`].
    NodeEvent {
        /// Its agent redeemed an enrollment token.
        Enroll = "enroll",
        /// Its agent connected to the channel.
        Connect = "connect",
        /// A tenant's workload was decommissioned on it.
        TenantLeft = "tenant_left",
        /// It was reimaged after a tenant.
        Reset = "reset",
        /// An operator forced a node in use back to enrollment.
        ForceReset = "force_reset",
        /// The control plane was restored from a backup: the node's identity was revoked, and it must enroll again.
        IdentityEnded = "identity_ended",
        /// An operator removed it.
        Retire = "retire",
    }
}

text_enum! {
    /// State of a node's channel; always shown with the time since when it holds.
    Connectivity {
        /// No agent has ever connected.
        Never = "never",
        /// The channel is open and answers.
        Connected = "connected",
        /// The channel has been silent for a while or has just closed.
        Stale = "stale",
        /// Silent for so long that no workload is placed there.
        Unreachable = "unreachable",
    }
}

impl NodeState {
    /// Returns the state after `event`, or an error if the event is illegal in this state.
    pub fn on(self, event: NodeEvent) -> Result<Self, IllegalTransition> {
        use {NodeEvent as E, NodeState as S};
        match (self, event) {
            (S::Registered | S::Enrolled, E::Enroll) => Ok(S::Enrolled),
            (S::Enrolled | S::Active, E::Connect) => Ok(S::Active),
            (S::Active, E::TenantLeft) => Ok(S::NeedsReimage),
            (S::NeedsReimage, E::Reset) | (S::Enrolled | S::Active, E::ForceReset) => Ok(S::Registered),
            (S::Enrolled | S::Active, E::IdentityEnded) => Ok(S::Enrolled),
            (S::Registered | S::Enrolled | S::Active | S::NeedsReimage, E::Retire) => Ok(S::Retired),
            (S::Registered | S::Enrolled | S::Active | S::NeedsReimage | S::Retired, event) => {
                Err(IllegalTransition { what: "node", state: self.as_str(), event: event.as_str() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_node_accepts_no_event_and_used_node_returns_only_by_reset() {
        assert!(NodeEvent::ALL.iter().all(|&event| NodeState::Retired.on(event).is_err()));
        let ways_back: Vec<_> = NodeEvent::ALL
            .iter()
            .filter(|&&event| NodeState::NeedsReimage.on(event).is_ok_and(|to| to != NodeState::Retired))
            .collect();
        assert_eq!(ways_back, [&NodeEvent::Reset]);
    }

    #[test]
    fn force_reset_is_refused_for_a_node_that_needs_a_reimage() {
        assert!(NodeState::NeedsReimage.on(NodeEvent::ForceReset).is_err());
        assert_eq!(NodeState::Active.on(NodeEvent::ForceReset), Ok(NodeState::Registered));
        assert!(NodeState::Active.on(NodeEvent::Reset).is_err(), "an active node can only be reset by force");
    }

    #[test]
    fn node_that_needs_a_reimage_cannot_connect_or_enroll() {
        assert!(NodeState::NeedsReimage.on(NodeEvent::Connect).is_err());
        assert!(NodeState::NeedsReimage.on(NodeEvent::Enroll).is_err());
    }
}
