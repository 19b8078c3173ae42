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
    let with_effect = |step: StepProgress| {
        let action = StepAction::ClusterCall { call: "call".into() };
        StepProgress { spec: StepSpec { action, ..step.spec }, ..step }
    };
    let steps = [step("a", &[], StepState::Running), with_effect(step("b", &[], StepState::Pending))];
    let next = schedule(&steps, true, NOW);
    assert_eq!((next.run.len(), keys(&next.skip), next.ending), (0, vec!["b"], None));
    let ended = [step("a", &[], StepState::Cancelled), step("b", &[], StepState::Skipped)];
    assert_eq!(schedule(&ended, true, NOW).ending, Some(Ending::Cancelled));
}

#[test]
fn a_cancelled_operation_reaches_the_milestones_whose_needs_were_met() {
    let of = |state| [step("a", &[], state), step("done", &["a"], StepState::Pending)];
    let next = schedule(&of(StepState::Running), true, NOW);
    assert_eq!((next.run.len(), next.skip.len(), next.ending), (0, 0, None), "the running step may succeed");
    assert_eq!(keys(&schedule(&of(StepState::Succeeded), true, NOW).run), ["done"]);
    assert_eq!(keys(&schedule(&of(StepState::Cancelled), true, NOW).skip), ["done"]);
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

#[test]
fn member_is_finished_once_all_of_its_steps_succeeded() {
    let id = |number| MemberId::from_uuid(uuid::Uuid::from_u128(number));
    let of = |number, state| {
        let mut step = step("a", &[], state);
        step.spec.member = Some(id(number));
        step
    };
    let steps = [
        step("whole", &[], StepState::Failed),
        of(1, StepState::Succeeded),
        of(1, StepState::Succeeded),
        of(2, StepState::Succeeded),
        of(2, StepState::Skipped),
        of(3, StepState::Failed),
    ];
    assert_eq!(finished_members(&steps), BTreeSet::from([id(1)]));
}
