//! A plan is data: named steps, what each needs, and what its failure means. Reading it is understanding the operation.

use std::{fmt, time::Duration};

use gpuaas_model::{MemberEvent, MemberId, NodeId, OperationKind, TaskType};
use serde::{Deserialize, Serialize};

/// A step's name inside its operation, for example `agent-2/start`. Stable across control-plane versions: rows carry it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepKey(String);

impl StepKey {
    /// The key of something done for one member.
    pub fn of(member: &str, what: &str) -> Self {
        Self(format!("{member}/{what}"))
    }

    /// The key of something done for the workload as a whole, or one read back from a row.
    pub fn named(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is done, without for whom.
    pub fn what(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which of the three kinds of step it is, with what the engine needs to start it.
///
/// Parameters are not here: they are rendered at each attempt from what is known then (`App::render`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepAction {
    /// A signed task on a node.
    NodeTask {
        /// Where.
        node: NodeId,
        /// What.
        task: TaskType,
    },
    /// A call to the app's cluster through the tunnel, by the name its effects know.
    ClusterCall {
        /// The name.
        call: String,
    },
    /// A change of our own records.
    Record {
        /// Which.
        record: RecordKind,
    },
}

/// The changes of records that are steps of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Checks once more that every allocation of the operation is still usable for it.
    ConfirmPlacement,
    /// Marks a point of the story that has no effect of its own; its phase says which.
    Milestone,
}

/// What a step's final failure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureScope {
    /// The operation: without this step the workload cannot be what it should.
    Workload,
    /// The member it is for; the rest goes on.
    Member,
}

/// How often and how soon a failed step is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts altogether, the first included.
    pub attempts_max: u32,
    /// Wait before the second attempt; doubles from there.
    pub base_ms: u64,
    /// Longest wait.
    pub cap_ms: u64,
}

impl Retry {
    /// For effects that are cheap to repeat.
    pub const QUICK: Self = Self { attempts_max: 5, base_ms: 500, cap_ms: 15_000 };
    /// For effects whose own deadline is minutes: the deadline has waited long enough already.
    pub const SLOW: Self = Self { attempts_max: 2, base_ms: 2_000, cap_ms: 30_000 };
    /// For steps that must not be repeated without a person.
    pub const NEVER: Self = Self { attempts_max: 1, base_ms: 0, cap_ms: 0 };

    /// The wait after attempt number `attempt` (from 1) failed: exponential, with the upper half of it jittered by
    /// `jitter_per_mille` (0..1000) so that many members do not come back at once.
    pub fn wait_after(&self, attempt: u32, jitter_per_mille: u64) -> Duration {
        let doubled = self.base_ms.saturating_mul(1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX));
        let full = doubled.min(self.cap_ms);
        Duration::from_millis(full / 2 + (full / 2).saturating_mul(jitter_per_mille.min(1_000)) / 1_000)
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// Its name.
    pub key: StepKey,
    /// The app's phase that it belongs to.
    pub phase: String,
    /// Whom it is for.
    pub member: Option<MemberId>,
    /// What it does.
    pub action: StepAction,
    /// Steps that must have succeeded before.
    pub needs: Vec<StepKey>,
    /// Steps that must have ended before, however they ended: `decommission` goes on past a member that fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepKey>,
    /// What happens to the member when the step starts for the first time.
    pub begins: Option<MemberEvent>,
    /// What happens to the member when it succeeded.
    pub ends: Option<MemberEvent>,
    /// Longest time of one attempt, in milliseconds. Every step has one: nothing waits for ever.
    pub deadline_ms: u64,
    /// How it is tried again.
    pub retry: Retry,
    /// What its final failure ends.
    pub scope: FailureScope,
}

/// The steps of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What it is for.
    pub kind: OperationKind,
    /// In an order in which they could run one by one.
    pub steps: Vec<StepSpec>,
}

impl Plan {
    /// Most steps of one plan; an app's member limit keeps well below.
    pub const STEPS_MAX: usize = 2_000;

    /// A plan without steps yet.
    pub fn of(kind: OperationKind) -> Self {
        Self { kind, steps: Vec::new() }
    }

    /// Adds a step that needs the one before it (if there is one) besides its own needs.
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

    /// Adds a step with exactly the needs it names.
    #[must_use]
    pub fn beside(mut self, step: StepSpec) -> Self {
        self.steps.push(step);
        self
    }

    /// The step of that name.
    pub fn step(&self, key: &str) -> Option<&StepSpec> {
        self.steps.iter().find(|step| step.key.as_str() == key)
    }

    /// The first step that runs a task on `node`.
    pub fn first_touching(&self, node: NodeId) -> Option<&StepSpec> {
        self.steps.iter().find(|step| matches!(step.action, StepAction::NodeTask { node: on, .. } if on == node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::step;

    fn task(key: StepKey, node: NodeId) -> StepSpec {
        let action = StepAction::NodeTask { node, task: TaskType::Noop };
        StepSpec { action, ..step(key.as_str(), "p") }
    }

    #[test]
    fn steps_are_found_by_name_and_by_the_node_that_they_touch() {
        let [one, two, absent] = [1, 2, 3].map(|number| NodeId::from_uuid(uuid::Uuid::from_u128(number)));
        let plan = Plan::of(OperationKind::Deploy)
            .then(task(StepKey::of("server-1", "install"), one))
            .beside(task(StepKey::of("agent-1", "install"), two))
            .then(task(StepKey::of("agent-1", "start"), two));
        let key = |step: Option<&StepSpec>| step.map(|step| step.key.to_string());
        assert_eq!(key(plan.step("agent-1/install")), Some("agent-1/install".to_owned()));
        assert_eq!(key(plan.step("install")), None);
        assert_eq!(key(plan.first_touching(two)), Some("agent-1/install".to_owned()));
        assert_eq!(key(plan.first_touching(absent)), None);
        assert_eq!(plan.steps[1].needs, [], "beside the others");
        assert_eq!(plan.steps[2].needs, [StepKey::of("agent-1", "install")], "after the one before it");
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
