//! Decides which steps run now, which never run, and whether the operation is over.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{MemberId, OperationState, StepState, Timestamp};

use crate::plan::{FailureScope, RecordKind, StepAction, StepKey, StepSpec};

/// A step with its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// Specification of the step.
    pub spec: StepSpec,
    /// State of the step.
    pub state: StepState,
    /// Number of attempts begun.
    pub attempts: u32,
    /// Earliest time of the next attempt, in backoff.
    pub not_before: Option<Timestamp>,
}

/// The engine's next actions for an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Steps to start an attempt of; all may run in parallel.
    pub run: Vec<StepKey>,
    /// Steps that will never run.
    pub skip: Vec<StepKey>,
    /// Time of the next check, even if nothing else happens.
    pub wake_at: Option<Timestamp>,
    /// Set if the operation is over.
    pub ending: Option<Ending>,
}

/// The result with which an operation ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every step succeeded.
    Succeeded,
    /// A step failed for good.
    NeedsAttention,
    /// It was cancelled before every step succeeded, and nothing runs any more.
    Cancelled,
}

impl Ending {
    /// Returns the state for the operation's row.
    pub const fn state(self) -> OperationState {
        match self {
            Self::Succeeded => OperationState::Succeeded,
            Self::NeedsAttention => OperationState::NeedsAttention,
            Self::Cancelled => OperationState::Cancelled,
        }
    }
}

/// Returns the next actions for `steps` at `now`. `cancelled` if no further step begins: a person cancelled the operation, or it is a
/// reconciliation of the platform that yields to a request.
///
/// A step runs when all steps in its `needs` have succeeded and all in its `after` have ended. It is skipped as soon as one of its `needs`
/// can no longer succeed, when the [operation has failed](operation_failed) (unless the step has an `after`), or when the operation is
/// cancelled before the step begins. Running attempts continue to their end. A milestone has no effect that a cancellation could prevent: it
/// is reached when its needs were met nevertheless.
pub fn schedule(steps: &[StepProgress], cancelled: bool, now: Timestamp) -> Schedule {
    let cancelled = cancelled && !bugs::on(Bug::CancelIgnored);
    let states: BTreeMap<&StepKey, StepState> = steps.iter().map(|step| (&step.spec.key, step.state)).collect();
    // Steps with an `after` clean up; they still begin.
    let failed = operation_failed(steps);
    let mut next = Schedule::default();
    for step in steps {
        match step.state {
            StepState::Pending
                if (cancelled && !is_milestone(&step.spec))
                    || can_never_run(step, &states)
                    || (failed && step.spec.after.is_empty()) =>
            {
                next.skip.push(step.spec.key.clone());
            }
            StepState::Backoff if cancelled => next.skip.push(step.spec.key.clone()),
            StepState::Pending if may_run(step, &states) => next.run.push(step.spec.key.clone()),
            StepState::Backoff => match step.not_before {
                Some(at) if at > now => next.wake_at = Some(next.wake_at.map_or(at, |earlier| earlier.min(at))),
                _ => next.run.push(step.spec.key.clone()),
            },
            StepState::Pending
            | StepState::Running
            | StepState::Succeeded
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => {}
        }
    }
    if next.run.is_empty() && next.skip.is_empty() && steps.iter().all(|step| step.state.is_final()) {
        next.ending = Some(ending(steps, cancelled));
    }
    next
}

fn is_milestone(step: &StepSpec) -> bool {
    matches!(step.action, StepAction::Record { record: RecordKind::Milestone })
}

fn may_run(step: &StepProgress, states: &BTreeMap<&StepKey, StepState>) -> bool {
    let succeeded = |key| states.get(key) == Some(&StepState::Succeeded);
    let ended = |key| bugs::on(Bug::AfterIgnored) || states.get(key).is_some_and(|state| state.is_final());
    step.spec.needs.iter().all(succeeded) && step.spec.after.iter().all(ended)
}

fn can_never_run(step: &StepProgress, states: &BTreeMap<&StepKey, StepState>) -> bool {
    step.spec.needs.iter().any(|key| match states.get(key) {
        Some(StepState::Failed | StepState::Skipped | StepState::Cancelled) | None => true,
        Some(StepState::Pending | StepState::Running | StepState::Backoff | StepState::Succeeded) => false,
    })
}

/// Returns true if a failed step has ended the operation: its scope is the operation, or more members of its component have failed than
/// may fail.
pub fn operation_failed(steps: &[StepProgress]) -> bool {
    let failed = || steps.iter().filter(|step| step.state == StepState::Failed);
    failed().any(|step| match &step.spec.scope {
        FailureScope::Operation => true,
        FailureScope::Member => false,
        FailureScope::Component { component, may_fail } => {
            let is_alike = |other: &&StepProgress| match &other.spec.scope {
                FailureScope::Component { component: of, .. } => of == component,
                FailureScope::Operation | FailureScope::Member => false,
            };
            let members: BTreeSet<_> = failed().filter(is_alike).filter_map(|other| other.spec.member).collect();
            members.len() > *may_fail as usize
        }
    })
}

/// Returns the members that have steps, all of which succeeded.
pub fn finished_members(steps: &[StepProgress]) -> BTreeSet<MemberId> {
    let of_members = |is_it: fn(StepState) -> bool| {
        steps.iter().filter(move |step| is_it(step.state)).filter_map(|step| step.spec.member).collect::<BTreeSet<_>>()
    };
    let succeeded = of_members(|state| state == StepState::Succeeded);
    let unfinished = of_members(|state| state != StepState::Succeeded);
    succeeded.difference(&unfinished).copied().collect()
}

fn ending(steps: &[StepProgress], cancelled: bool) -> Ending {
    let failed = steps.iter().any(|step| step.state == StepState::Failed);
    let incomplete = steps.iter().any(|step| step.state != StepState::Succeeded);
    match (failed, cancelled && incomplete) {
        (true, _) => Ending::NeedsAttention,
        (false, true) => Ending::Cancelled,
        (false, false) => Ending::Succeeded,
    }
}

#[cfg(test)]
mod tests;
