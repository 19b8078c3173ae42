//! A workload's part on one node.

use serde::{Deserialize, Serialize};

use crate::{
    Fault, Timestamp,
    state::{IllegalTransition, text_enum},
};

/// Where a member is in its life. The table of transitions is [`MemberState::on`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum MemberState {
    /// Placed; its node is untouched.
    Pending,
    /// Its node is checked and the software laid out.
    Preparing {
        /// Since when.
        since: Timestamp,
    },
    /// The first server starts.
    Bootstrapping {
        /// Since when.
        since: Timestamp,
    },
    /// It joins a server that answers.
    Joining {
        /// Since when.
        since: Timestamp,
    },
    /// It does its part.
    Ready {
        /// Since when.
        since: Timestamp,
    },
    /// Its service is stopped on request.
    Stopped {
        /// Since when.
        since: Timestamp,
    },
    /// Work moves off it.
    Draining {
        /// Since when.
        since: Timestamp,
    },
    /// No work is left on it.
    Drained {
        /// Since when.
        since: Timestamp,
    },
    /// Its software is being removed.
    Removing {
        /// Since when.
        since: Timestamp,
    },
    /// Nothing of it is left but this record.
    Removed,
    /// It does not do its part, and why.
    Failed {
        /// Since when.
        since: Timestamp,
        /// What went wrong.
        fault: Fault,
    },
}

/// What happens to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum MemberEvent {
    /// Its first task is about to run.
    Prepare,
    /// The first server's software is in place and starts.
    Bootstrap,
    /// Its software is in place and joins.
    Join,
    /// It was seen to do its part.
    BecameReady,
    /// Its service stopped on request.
    Stopped,
    /// Draining begins.
    Drain,
    /// Draining ended.
    Drained,
    /// Removal begins.
    Remove,
    /// Removal ended.
    Removed,
    /// Something went wrong.
    Fail {
        /// What.
        fault: Fault,
    },
}

text_enum! {
    /// A [`MemberState`] without its data: what lists filter by.
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
    /// The state after `event` at `now`, or why that event cannot happen here.
    ///
    /// A failed member may be prepared, bootstrapped or joined again (that is a repair or a resume), may recover by itself,
    /// and may be removed. What was cut off in the middle, bringing up or removing, may begin again.
    pub fn on(&self, event: MemberEvent, now: Timestamp) -> Result<Self, IllegalTransition> {
        use {MemberEvent as E, MemberState as S};
        match (self, event) {
            (
                S::Pending | S::Preparing { .. } | S::Bootstrapping { .. } | S::Joining { .. } | S::Failed { .. },
                E::Prepare,
            ) => Ok(S::Preparing { since: now }),
            (S::Preparing { .. } | S::Bootstrapping { .. } | S::Failed { .. }, E::Bootstrap) => {
                Ok(S::Bootstrapping { since: now })
            }
            (S::Preparing { .. } | S::Joining { .. } | S::Failed { .. }, E::Join) => Ok(S::Joining { since: now }),
            (S::Bootstrapping { .. } | S::Joining { .. } | S::Stopped { .. } | S::Failed { .. }, E::BecameReady) => {
                Ok(S::Ready { since: now })
            }
            (S::Ready { .. }, E::Stopped) => Ok(S::Stopped { since: now }),
            (S::Ready { .. } | S::Failed { .. }, E::Drain) => Ok(S::Draining { since: now }),
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
            (S::Removing { .. }, E::Removed) => Ok(S::Removed),
            (
                S::Pending
                | S::Preparing { .. }
                | S::Bootstrapping { .. }
                | S::Joining { .. }
                | S::Ready { .. }
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

    /// This state without its data.
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

    /// Why it failed, if it did.
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
    /// Its name, for messages and tables.
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
            next: NextAction { text: "n".into(), command: None },
        }
    }

    #[test]
    fn a_member_reaches_ready_by_the_documented_way() {
        let now = Timestamp::from_millis(9);
        let way = [MemberEvent::Prepare, MemberEvent::Join, MemberEvent::BecameReady];
        let end = way.into_iter().fold(MemberState::Pending, |state, event| state.on(event, now).expect("legal"));
        assert_eq!(end, MemberState::Ready { since: now });
    }

    #[test]
    fn a_member_that_failed_says_why_and_no_other_does() {
        let failed = MemberState::Pending.on(MemberEvent::Fail { fault: fault() }, Timestamp::from_millis(1));
        assert_eq!(failed.expect("legal").fault(), Some(&fault()));
        assert_eq!(MemberState::Pending.fault(), None);
    }

    #[test]
    fn a_member_that_is_gone_never_comes_back() {
        let events =
            [MemberEvent::Prepare, MemberEvent::BecameReady, MemberEvent::Remove, MemberEvent::Fail { fault: fault() }];
        for event in events {
            assert!(MemberState::Removed.on(event, Timestamp::from_millis(1)).is_err());
        }
    }

    #[test]
    fn a_pending_member_cannot_be_ready_without_having_been_touched() {
        let refused = MemberState::Pending.on(MemberEvent::BecameReady, Timestamp::from_millis(1));
        assert_eq!(refused, Err(IllegalTransition { what: "member", state: "pending", event: "became_ready" }));
    }
}
