//! Decides which steps run now, which never run, and whether the operation is over.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::{OperationState, StepState, Timestamp};

use crate::plan::{FailureScope, StepKey, StepSpec};

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

/// Returns the next actions for `steps` at `now`.
///
/// A step runs when all steps in its `needs` have succeeded and all in its `after` have ended. It is skipped as soon as one of its `needs`
/// can no longer succeed, when the [operation has failed](operation_failed) (unless the step has an `after`), or when the operation is
/// cancelled before the step begins. Running attempts continue to their end.
pub fn schedule(steps: &[StepProgress], cancelled: bool, now: Timestamp) -> Schedule {
    let states: BTreeMap<&StepKey, StepState> = steps.iter().map(|step| (&step.spec.key, step.state)).collect();
    // Steps with an `after` clean up; they still begin.
    let failed = operation_failed(steps);
    let mut next = Schedule::default();
    for step in steps {
        match step.state {
            StepState::Pending
                if cancelled || can_never_run(step, &states) || (failed && step.spec.after.is_empty()) =>
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

fn may_run(step: &StepProgress, states: &BTreeMap<&StepKey, StepState>) -> bool {
    let succeeded = |key| states.get(key) == Some(&StepState::Succeeded);
    let ended = |key| states.get(key).is_some_and(|state| state.is_final());
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
mod tests {
    use gpuaas_model::MemberId;
    use proptest::prelude::*;

    use super::*;
    use crate::{plan::Retry, test_steps};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn step(key: &str, needs: &[&str], state: StepState) -> StepProgress {
        let needs = needs.iter().map(|need| StepKey::named(*need)).collect();
        let spec = StepSpec { needs, retry: Retry::QUICK, ..test_steps::step(key, "p") };
        StepProgress { spec, state, attempts: 0, not_before: None }
    }

    fn keys(keys: &[StepKey]) -> Vec<&str> {
        keys.iter().map(StepKey::as_str).collect()
    }

    #[test]
    fn independent_steps_run_in_parallel_and_dependent_steps_wait() {
        let steps = [
            step("a", &[], StepState::Succeeded),
            step("b", &["a"], StepState::Pending),
            step("c", &["a"], StepState::Pending),
            step("d", &["b", "c"], StepState::Pending),
        ];
        let next = schedule(&steps, false, NOW);
        assert_eq!(keys(&next.run), ["b", "c"]);
        assert_eq!(next.ending, None);
    }

    #[test]
    fn dependents_of_a_failed_step_are_skipped_and_others_continue() {
        let steps = [
            step("agent-1", &[], StepState::Failed),
            step("agent-1/after", &["agent-1"], StepState::Pending),
            step("agent-2", &[], StepState::Pending),
        ];
        let next = schedule(&steps, false, NOW);
        assert_eq!((keys(&next.skip), keys(&next.run)), (vec!["agent-1/after"], vec!["agent-2"]));
    }

    fn of_server(number: u128, key: &str, state: StepState) -> StepProgress {
        let mut step = step(key, &[], state);
        step.spec.member = Some(MemberId::from_uuid(uuid::Uuid::from_u128(number)));
        step.spec.scope = FailureScope::Component { component: "server".to_owned(), may_fail: 1 };
        step
    }

    #[test]
    fn operation_survives_as_many_failed_members_of_a_component_as_may_fail() {
        let next = |more: &[StepProgress]| {
            let first = [of_server(1, "server-1/a", StepState::Failed), of_server(1, "server-1/b", StepState::Failed)];
            schedule(&[&first[..], more].concat(), false, NOW)
        };
        let third = || of_server(3, "server-3", StepState::Pending);
        let one = next(&[of_server(2, "server-2", StepState::Running), third()]);
        assert_eq!((keys(&one.run), keys(&one.skip)), (vec!["server-3"], vec![]), "one member failed, in two steps");
        let two = next(&[of_server(2, "server-2", StepState::Failed), third()]);
        assert_eq!((keys(&two.run), keys(&two.skip)), (vec![], vec!["server-3"]));
        let agent = next(&[step("agent-1", &[], StepState::Failed), third()]);
        assert_eq!(keys(&agent.run), ["server-3"], "members of other components do not count");
    }

    proptest! {
        #[test]
        fn property_operation_fails_exactly_with_one_more_member_than_may_fail(
            failed in proptest::collection::vec(0_u128..6, 0..12), may_fail in 0_u32..6,
        ) {
            let steps = failed.iter().enumerate().map(|(at, member)| {
                let mut step = of_server(*member, &at.to_string(), StepState::Failed);
                step.spec.scope = FailureScope::Component { component: "server".to_owned(), may_fail };
                step
            });
            let members: BTreeSet<_> = failed.iter().collect();
            prop_assert_eq!(operation_failed(&steps.collect::<Vec<_>>()), members.len() > may_fail as usize);
        }
    }

    #[test]
    fn no_step_begins_after_a_failure_of_the_operation() {
        let mut server = step("server", &[], StepState::Failed);
        server.spec.scope = FailureScope::Operation;
        let next = schedule(&[server, step("other", &[], StepState::Pending)], false, NOW);
        assert_eq!((keys(&next.skip), next.run.len()), (vec!["other"], 0));
    }

    #[test]
    fn cleanup_continues_after_a_failure() {
        let mut clean = step("clean", &[], StepState::Pending);
        clean.spec.after = vec![StepKey::named("stop")];
        let mut stop = step("stop", &[], StepState::Failed);
        stop.spec.scope = FailureScope::Operation;
        assert_eq!(keys(&schedule(&[stop, clean], false, NOW).run), ["clean"]);
    }

    #[test]
    fn backoff_sets_the_wake_time() {
        let mut waiting = step("a", &[], StepState::Backoff);
        waiting.not_before = Some(NOW.plus(std::time::Duration::from_secs(3)));
        assert_eq!(schedule(std::slice::from_ref(&waiting), false, NOW).wake_at, waiting.not_before);
        let later = NOW.plus(std::time::Duration::from_secs(3));
        assert_eq!(keys(&schedule(&[waiting], false, later).run), ["a"]);
    }

    #[test]
    fn a_cancelled_operation_lets_running_steps_end_and_starts_no_other() {
        let steps = [step("a", &[], StepState::Running), step("b", &[], StepState::Pending)];
        let next = schedule(&steps, true, NOW);
        assert_eq!((next.run.len(), keys(&next.skip), next.ending), (0, vec!["b"], None));
        let ended = [step("a", &[], StepState::Cancelled), step("b", &[], StepState::Skipped)];
        assert_eq!(schedule(&ended, true, NOW).ending, Some(Ending::Cancelled));
    }

    #[test]
    fn an_operation_succeeds_only_when_every_step_did() {
        let done = [step("a", &[], StepState::Succeeded), step("b", &["a"], StepState::Succeeded)];
        assert_eq!(schedule(&done, false, NOW).ending, Some(Ending::Succeeded));
        let partly = [step("a", &[], StepState::Succeeded), step("b", &["a"], StepState::Failed)];
        assert_eq!(schedule(&partly, false, NOW).ending, Some(Ending::NeedsAttention));
    }

    #[test]
    fn cancellation_skips_steps_in_backoff() {
        let next = schedule(&[step("a", &[], StepState::Backoff)], true, NOW);
        assert_eq!((keys(&next.skip), next.run.len(), next.ending), (vec!["a"], 0, None));
    }

    #[test]
    fn earliest_backoff_sets_the_wake_time() {
        let waits = |key: &str, seconds| {
            let mut step = step(key, &[], StepState::Backoff);
            step.not_before = Some(NOW.plus(std::time::Duration::from_secs(seconds)));
            step
        };
        let next = schedule(&[waits("a", 9), waits("b", 3), waits("c", 6)], false, NOW);
        assert_eq!(next.wake_at, Some(NOW.plus(std::time::Duration::from_secs(3))));
    }

    #[test]
    fn failed_member_stops_no_other_step_and_cleanup_waits_for_its_steps() {
        let failed = step("agent-1", &[], StepState::Failed);
        let mut clean = step("clean", &[], StepState::Pending);
        clean.spec.after = vec![StepKey::named("stop")];
        let running = step("stop", &[], StepState::Running);
        let next = schedule(&[failed, running, clean], false, NOW);
        assert_eq!(next, Schedule::default());
    }

    #[test]
    fn late_cancellation_changes_neither_success_nor_failure() {
        assert_eq!(schedule(&[step("a", &[], StepState::Succeeded)], true, NOW).ending, Some(Ending::Succeeded));
        let failed = [step("a", &[], StepState::Failed), step("b", &["a"], StepState::Skipped)];
        assert_eq!(schedule(&failed, true, NOW).ending, Some(Ending::NeedsAttention));
    }
}
