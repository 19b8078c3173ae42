//! A workload's member: its part on one machine.

use serde::{Deserialize, Serialize};

use crate::{
    AllocationId, Fault, Name, NodeId, Timestamp,
    state::{IllegalTransition, text_enum},
};

/// The machine on which a member runs. Rows store the fields of the variant without its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MemberPlace {
    /// A node that the project holds through an allocation.
    Allocation {
        /// The allocation.
        allocation: AllocationId,
        /// The node of the allocation.
        node: NodeId,
    },
    /// A machine that is no node of the platform: it has no agent and takes no tasks.
    External {
        /// Name of the machine, unique within the workload.
        machine: Name,
        /// Address at which its services listen.
        address: String,
    },
}

impl MemberPlace {
    /// Returns the allocation; `None` for an external machine.
    pub const fn allocation(&self) -> Option<AllocationId> {
        match self {
            Self::Allocation { allocation, .. } => Some(*allocation),
            Self::External { .. } => None,
        }
    }

    /// Returns the node; `None` for an external machine.
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Allocation { node, .. } => Some(*node),
            Self::External { .. } => None,
        }
    }
}

/// Lifecycle state of a member. [`MemberState::on`] is the transition table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum MemberState {
    /// Placed; its node has not been changed.
    Pending,
    /// The node is checked and the software installed.
    Preparing {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// The first server is starting.
    Bootstrapping {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// The member is joining a server that answers.
    Joining {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// The member serves its role.
    Ready {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// The service was stopped on request.
    Stopped {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// Work is being moved off the member.
    Draining {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// No work is left on the member.
    Drained {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// The software is being removed.
    Removing {
        /// When the member entered this state.
        since: Timestamp,
    },
    /// Only this record is left.
    Removed,
    /// The member does not serve its role; `fault` has the reason.
    Failed {
        /// When the member entered this state.
        since: Timestamp,
        /// The reason of the failure.
        fault: Fault,
    },
}

/// Event that changes a [`MemberState`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum MemberEvent {
    /// The first task is about to run.
    Prepare,
    /// The first server's software is installed; the server starts.
    Bootstrap,
    /// The software is installed; the member starts to join.
    Join,
    /// The member was observed serving its role.
    BecameReady,
    /// The service was stopped on request.
    Stopped,
    /// Draining began.
    Drain,
    /// Draining ended.
    Drained,
    /// Removal began.
    Remove,
    /// Removal ended.
    Removed,
    /// The member failed.
    Fail {
        /// The reason of the failure.
        fault: Fault,
    },
}

text_enum! {
    /// A [`MemberState`] without its data; lists filter by it.
    MemberStateName {
        /// See [`MemberState::Pending`].
        Pending = "pending",
        /// See [`MemberState::Preparing`].
        Preparing = "preparing",
        /// See [`MemberState::Bootstrapping`].
        Bootstrapping = "bootstrapping",
        /// See [`MemberState::Joining`].
        Joining = "joining",
        /// See [`MemberState::Ready`].
        Ready = "ready",
        /// See [`MemberState::Stopped`].
        Stopped = "stopped",
        /// See [`MemberState::Draining`].
        Draining = "draining",
        /// See [`MemberState::Drained`].
        Drained = "drained",
        /// See [`MemberState::Removing`].
        Removing = "removing",
        /// See [`MemberState::Removed`].
        Removed = "removed",
        /// See [`MemberState::Failed`].
        Failed = "failed",
    }
}

impl MemberState {
    /// Returns the state after `event` at `now`, or an error if the event is illegal in this state.
    ///
    /// A failed member can be prepared, bootstrapped or joined again (by a repair or a resume), can recover by itself, and can be removed.
    /// A ready member can be prepared again (by an upgrade or a reinstallation). A drained member becomes ready when it accepts work again,
    /// also if its draining did not end. An interrupted bring-up, draining, stop or removal can begin again.
    pub fn on(&self, event: MemberEvent, now: Timestamp) -> Result<Self, IllegalTransition> {
        use {MemberEvent as E, MemberState as S};
        match (self, event) {
            (
                S::Pending
                | S::Preparing { .. }
                | S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
                | S::Stopped { .. }
                | S::Draining { .. }
                | S::Drained { .. }
                | S::Failed { .. },
                E::Prepare,
            ) => Ok(S::Preparing { since: now }),
            (S::Preparing { .. } | S::Bootstrapping { .. } | S::Failed { .. }, E::Bootstrap) => {
                Ok(S::Bootstrapping { since: now })
            }
            (S::Preparing { .. } | S::Joining { .. } | S::Failed { .. }, E::Join) => Ok(S::Joining { since: now }),
            (
                S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
                | S::Stopped { .. }
                | S::Draining { .. }
                | S::Drained { .. }
                | S::Failed { .. },
                E::BecameReady,
            ) => Ok(S::Ready { since: now }),
            (
                S::Ready { .. } | S::Stopped { .. } | S::Draining { .. } | S::Drained { .. } | S::Failed { .. },
                E::Stopped,
            ) => Ok(S::Stopped { since: now }),
            (S::Ready { .. } | S::Draining { .. } | S::Drained { .. } | S::Failed { .. }, E::Drain) => {
                Ok(S::Draining { since: now })
            }
            (S::Draining { .. }, E::Drained) => Ok(S::Drained { since: now }),
            (
                S::Pending
                | S::Preparing { .. }
                | S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
                | S::Stopped { .. }
                | S::Draining { .. }
                | S::Drained { .. }
                | S::Removing { .. }
                | S::Failed { .. },
                E::Remove,
            ) => Ok(S::Removing { since: now }),
            // Its removal failed at first, and its node was found clean later.
            (S::Removing { .. } | S::Failed { .. }, E::Removed) => Ok(S::Removed),
            (
                S::Pending
                | S::Preparing { .. }
                | S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
                | S::Stopped { .. }
                | S::Draining { .. }
                | S::Drained { .. }
                | S::Removing { .. }
                | S::Failed { .. },
                E::Fail { fault },
            ) => Ok(S::Failed { since: now, fault }),
            (
                S::Pending
                | S::Preparing { .. }
                | S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
                | S::Stopped { .. }
                | S::Draining { .. }
                | S::Drained { .. }
                | S::Removing { .. }
                | S::Removed
                | S::Failed { .. },
                event,
            ) => Err(IllegalTransition { what: "member", state: self.name().as_str(), event: event.name() }),
        }
    }

    /// Returns the state's name without its data.
    pub const fn name(&self) -> MemberStateName {
        match self {
            Self::Pending => MemberStateName::Pending,
            Self::Preparing { .. } => MemberStateName::Preparing,
            Self::Bootstrapping { .. } => MemberStateName::Bootstrapping,
            Self::Joining { .. } => MemberStateName::Joining,
            Self::Ready { .. } => MemberStateName::Ready,
            Self::Stopped { .. } => MemberStateName::Stopped,
            Self::Draining { .. } => MemberStateName::Draining,
            Self::Drained { .. } => MemberStateName::Drained,
            Self::Removing { .. } => MemberStateName::Removing,
            Self::Removed => MemberStateName::Removed,
            Self::Failed { .. } => MemberStateName::Failed,
        }
    }

    /// Returns true if the member's service must run: it is ready, being drained, or drained.
    pub const fn is_in_service(&self) -> bool {
        match self {
            Self::Ready { .. } | Self::Draining { .. } | Self::Drained { .. } => true,
            Self::Pending
            | Self::Preparing { .. }
            | Self::Bootstrapping { .. }
            | Self::Joining { .. }
            | Self::Stopped { .. }
            | Self::Removing { .. }
            | Self::Removed
            | Self::Failed { .. } => false,
        }
    }

    /// Returns the fault of a failed member.
    pub const fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Failed { fault, .. } => Some(fault),
            Self::Pending
            | Self::Preparing { .. }
            | Self::Bootstrapping { .. }
            | Self::Joining { .. }
            | Self::Ready { .. }
            | Self::Stopped { .. }
            | Self::Draining { .. }
            | Self::Drained { .. }
            | Self::Removing { .. }
            | Self::Removed => None,
        }
    }
}

impl MemberEvent {
    /// Returns the event's name for messages and tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Bootstrap => "bootstrap",
            Self::Join => "join",
            Self::BecameReady => "became_ready",
            Self::Stopped => "stopped",
            Self::Drain => "drain",
            Self::Drained => "drained",
            Self::Remove => "remove",
            Self::Removed => "removed",
            Self::Fail { .. } => "fail",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultClass, NextAction};

    fn fault() -> Fault {
        Fault {
            code: "x".into(),
            class: FaultClass::Retryable,
            summary: "s".into(),
            evidence: None,
            next: NextAction::text("n"),
        }
    }

    #[test]
    fn member_becomes_ready_through_prepare_and_join() {
        let now = Timestamp::from_millis(9);
        let way = [MemberEvent::Prepare, MemberEvent::Join, MemberEvent::BecameReady];
        let end = way.into_iter().fold(MemberState::Pending, |state, event| state.on(event, now).expect("legal"));
        assert_eq!(end, MemberState::Ready { since: now });
    }

    #[test]
    fn member_is_upgraded_returns_from_a_drain_and_fails_while_stopped() {
        let (then, now) = (Timestamp::from_millis(1), Timestamp::from_millis(9));
        let after = |state: MemberState, event| state.on(event, now).map(|state| state.name());
        assert_eq!(after(MemberState::Ready { since: then }, MemberEvent::Prepare), Ok(MemberStateName::Preparing));
        assert_eq!(after(MemberState::Drained { since: then }, MemberEvent::BecameReady), Ok(MemberStateName::Ready));
        let failed = MemberEvent::Fail { fault: fault() };
        assert_eq!(after(MemberState::Stopped { since: then }, failed), Ok(MemberStateName::Failed));
    }

    #[test]
    fn member_is_in_service_from_ready_until_it_stops() {
        let since = Timestamp::from_millis(1);
        let serving = [MemberState::Ready { since }, MemberState::Draining { since }, MemberState::Drained { since }];
        assert!(serving.iter().all(MemberState::is_in_service));
        let others = [
            MemberState::Pending,
            MemberState::Joining { since },
            MemberState::Stopped { since },
            MemberState::Removing { since },
            MemberState::Removed,
            MemberState::Failed { since, fault: fault() },
        ];
        assert!(!others.iter().any(MemberState::is_in_service));
    }

    #[test]
    fn only_a_failed_member_has_a_fault() {
        let failed = MemberState::Pending.on(MemberEvent::Fail { fault: fault() }, Timestamp::from_millis(1));
        assert_eq!(failed.expect("legal").fault(), Some(&fault()));
        assert_eq!(MemberState::Pending.fault(), None);
    }

    #[test]
    fn removed_member_accepts_no_event() {
        let events =
            [MemberEvent::Prepare, MemberEvent::BecameReady, MemberEvent::Remove, MemberEvent::Fail { fault: fault() }];
        for event in events {
            assert!(MemberState::Removed.on(event, Timestamp::from_millis(1)).is_err());
        }
    }

    #[test]
    fn pending_member_cannot_become_ready_directly() {
        let refused = MemberState::Pending.on(MemberEvent::BecameReady, Timestamp::from_millis(1));
        assert_eq!(refused, Err(IllegalTransition { what: "member", state: "pending", event: "became_ready" }));
    }
}
