//! A plan as data: named steps, the needs of each, and the effect of its failure. A reader of the plan understands the operation.

use std::{fmt, time::Duration};

use gpuaas_model::{MemberEvent, MemberId, NodeId, OperationKind, TaskType};
use serde::{Deserialize, Serialize};

/// Key of a step within its operation, for example `agent-2/start`. Stable across control-plane versions, because rows contain it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepKey(String);

impl StepKey {
    /// Returns the key `MEMBER/WHAT` of a step for one member.
    pub fn of(member: &str, what: &str) -> Self {
        Self(format!("{member}/{what}"))
    }

    /// Returns the key of a step for the workload as a whole, or one that was read from a row.
    pub fn named(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part that names the action, without the member.
    pub fn what(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The action of a step, one of three kinds, with the data that the engine needs to start it.
///
/// Parameters are absent: `App::render` renders them at each attempt from the state at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A signed task on a node.
    NodeTask {
        /// Id of the node.
        node: NodeId,
        /// Type of the task.
        task: TaskType,
    },
    /// A call to the app's cluster through the tunnel. Rows keep its name as text; only the app knows its calls.
    ClusterCall {
        /// Name of the call, one of the app's.
        call: String,
    },
    /// A check or a mark in the control plane's own records.
    Record {
        /// Kind of the step.
        record: RecordKind,
    },
}

/// Steps that only check or mark the control plane's own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Checks again that every allocation of the operation is still usable for it.
    ConfirmPlacement,
    /// Marks a point of the operation and has no effect; its phase names the point.
    Milestone,
    /// Waits until the node of the step's member is connected.
    AwaitNode,
    /// Removes the step's member without proof: what it left on its node is unknown, and the node blocks placements until an inspection
    /// finds it clean.
    GiveUp,
}

/// Scope of a step's final failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// The operation fails.
    Operation,
    /// The step's member fails. The operation fails once more members of the component have failed in it than may fail, for example a
    /// second one of three servers. An app subtracts the members that had failed before.
    Component {
        /// Key of the member's component.
        component: String,
        /// Number of its members whose failure the operation survives.
        may_fail: u32,
    },
    /// The step's member fails; the operation continues with the others.
    Member,
}

/// Number and spacing of the attempts of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all, the first one included; those that the death of an agent interrupted do not count.
    pub attempts_max: u32,
    /// Wait before the second attempt, in milliseconds; doubles for each further one.
    pub base_ms: u64,
    /// Longest wait, in milliseconds.
    pub cap_ms: u64,
}

impl Retry {
    /// For effects that are cheap to repeat.
    pub const QUICK: Self = Self { attempts_max: 5, base_ms: 500, cap_ms: 15_000 };
    /// For effects with a deadline of minutes, which is already a long wait.
    pub const SLOW: Self = Self { attempts_max: 2, base_ms: 2_000, cap_ms: 30_000 };
    /// For steps that only a person may repeat.
    pub const NEVER: Self = Self { attempts_max: 1, base_ms: 0, cap_ms: 0 };

    /// Returns true if only a person may repeat the step, also after an interruption.
    pub const fn is_never(&self) -> bool {
        self.attempts_max <= 1
    }

    /// Returns the wait after attempt number `attempt` (from 1) failed: exponential, with its upper half jittered by `jitter_per_mille`
    /// (0..1000) so that many members do not retry at the same time.
    pub fn wait_after(&self, attempt: u32, jitter_per_mille: u64) -> Duration {
        let doubled = self.base_ms.saturating_mul(1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX));
        let full = doubled.min(self.cap_ms);
        Duration::from_millis(full / 2 + (full / 2).saturating_mul(jitter_per_mille.min(1_000)) / 1_000)
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpec {
    /// Key, unique within the operation.
    pub key: StepKey,
    /// Phase of the app to which the step belongs.
    pub phase: String,
    /// Member that the step is for; `None` for the workload as a whole.
    pub member: Option<MemberId>,
    /// Action that the step performs.
    pub action: StepAction,
    /// Steps that must have succeeded first.
    pub needs: Vec<StepKey>,
    /// Steps that must have ended first, with any result: `decommission` continues after a member fails.
    pub after: Vec<StepKey>,
    /// Event of the member when the step starts for the first time.
    pub on_first_start: Option<MemberEvent>,
    /// Event of the member when the step succeeds.
    pub on_success: Option<MemberEvent>,
    /// True if the member keeps its state when the step fails: the step moves work or changes records, and the member serves its role on. A
    /// task of such a step is not repeated on a node that is unreachable.
    pub spares_member: bool,
    /// Longest time of one attempt, in milliseconds. Every step has a deadline, so that nothing waits forever.
    pub deadline_ms: u64,
    /// Attempts and waits.
    pub retry: Retry,
    /// Scope of the step's final failure.
    pub scope: FailureScope,
}

impl StepSpec {
    /// Returns a step for the workload as a whole that needs no other one, is retried quickly, and fails the operation.
    pub fn new(key: StepKey, phase: impl Into<String>, action: StepAction, deadline: Duration) -> Self {
        Self {
            key,
            phase: phase.into(),
            member: None,
            action,
            needs: Vec::new(),
            after: Vec::new(),
            on_first_start: None,
            on_success: None,
            spares_member: false,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            retry: Retry::QUICK,
            scope: FailureScope::Operation,
        }
    }
}

/// The steps of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Steps in an order in which they could run one by one.
    pub steps: Vec<StepSpec>,
}

impl Plan {
    /// Most steps of one plan; the member limits of apps keep plans well below it.
    pub const STEPS_MAX: usize = 2_000;

    /// Returns a plan without steps.
    pub fn new(kind: OperationKind) -> Self {
        Self { kind, steps: Vec::new() }
    }

    /// Adds a step that needs the step before it, if there is one, in addition to its own needs.
    #[must_use]
    pub fn then(mut self, mut step: StepSpec) -> Self {
        if let Some(before) = self.steps.last()
            && !step.needs.contains(&before.key)
        {
            step.needs.push(before.key.clone());
        }
        self.steps.push(step);
        self
    }

    /// Adds a step with exactly its own needs.
    #[must_use]
    pub fn with(mut self, step: StepSpec) -> Self {
        self.steps.push(step);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_steps::step;

    #[test]
    fn a_step_needs_the_one_before_it_unless_it_has_its_own_needs() {
        let plan = Plan::new(OperationKind::Deploy)
            .then(step("server-1/install", "p"))
            .with(step("agent-1/install", "p"))
            .then(step("agent-1/start", "p"));
        assert_eq!(plan.steps[1].needs, [], "no implicit need");
        assert_eq!(plan.steps[2].needs, [StepKey::of("agent-1", "install")], "needs the step before it");
        assert_eq!((plan.steps[2].key.what(), StepKey::named("ready").what()), ("start", "ready"));
    }

    #[test]
    fn waits_double_up_to_the_cap_and_jitter_never_exceeds_them() {
        let retry = Retry { attempts_max: 9, base_ms: 100, cap_ms: 1_000 };
        let longest: Vec<_> = (1..6).map(|attempt| retry.wait_after(attempt, 1_000).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800, 1_000]);
        let shortest: Vec<_> = (1..6).map(|attempt| retry.wait_after(attempt, 0).as_millis()).collect();
        assert_eq!(shortest, [50, 100, 200, 400, 500]);
        assert_eq!(retry.wait_after(u32::MAX, u64::MAX).as_millis(), 1_000);
    }
}
