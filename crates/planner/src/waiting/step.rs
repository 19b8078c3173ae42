//! Explains steps.

use std::collections::BTreeMap;

use gpuaas_model::{Fault, MemberEvent, NextAction, OperationId, StepState, Timestamp, Waiting, WaitingFrom};

use crate::plan::{RecordKind, StepAction, StepKey, StepSpec};

/// Most steps that the explanation of a pending one names; it counts the others.
const NAMED_MAX: usize = 3;

/// The part of a step's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct StepRow<'a> {
    /// Operation that it belongs to.
    pub operation: OperationId,
    /// When that operation was accepted.
    pub accepted_at: Timestamp,
    /// The step as it was planned.
    pub spec: &'a StepSpec,
    /// State of the step.
    pub state: StepState,
    /// Number of attempts begun.
    pub attempts: u32,
    /// Earliest time of the next attempt, in backoff.
    pub not_before: Option<Timestamp>,
    /// What the present attempt last reported.
    pub detail: Option<&'a str>,
    /// Fault of the last attempt.
    pub fault: Option<&'a Fault>,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When the present attempt times out.
    pub deadline_at: Option<Timestamp>,
    /// When the step ended.
    pub ended_at: Option<Timestamp>,
}

/// What a running step waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited<'a> {
    /// Who is waited for, for example `agent-2`.
    pub subject: &'a str,
    /// What the subject has to do, as an infinitive without `to`.
    pub purpose: String,
    /// Who has to act.
    pub from: WaitingFrom,
}

/// Returns what an attempt of a step waits for.
pub fn awaited(spec: &StepSpec) -> Awaited<'_> {
    let member = spec.key.as_str().split_once('/').map(|(member, _)| member);
    let of = |subject, purpose: &str, from| Awaited { subject, purpose: purpose.to_owned(), from };
    match (&spec.action, member) {
        (StepAction::NodeTask { task, .. }, member) => {
            of(member.unwrap_or("its node"), task.purpose(), WaitingFrom::Node)
        }
        (StepAction::ClusterCall { call }, Some(member)) => match event_purpose(spec.on_success.as_ref()) {
            Some(purpose) => of(member, purpose, WaitingFrom::Cluster),
            None => of("the cluster", &format!("carry out {call} for {member}"), WaitingFrom::Cluster),
        },
        (StepAction::ClusterCall { .. }, None) => of("the cluster", "respond", WaitingFrom::Cluster),
        (StepAction::Record { record: RecordKind::ConfirmPlacement }, _) => {
            of("its nodes", "be available", WaitingFrom::Node)
        }
        (StepAction::Record { record: RecordKind::AwaitNode }, member) => {
            of(member.unwrap_or("its node"), "connect again", WaitingFrom::Node)
        }
        (StepAction::Record { record: RecordKind::Milestone | RecordKind::GiveUp }, _) => {
            of("the platform", &format!("record {}", spec.key), WaitingFrom::Platform)
        }
    }
}

/// Returns what a member does in the call with this event at its end; `None` if the event says nothing about it.
fn event_purpose(on_success: Option<&MemberEvent>) -> Option<&'static str> {
    match on_success? {
        MemberEvent::BecameReady => Some("become ready in the cluster"),
        MemberEvent::Drained => Some("be drained"),
        MemberEvent::Removed => Some("leave the cluster"),
        MemberEvent::Prepare
        | MemberEvent::Bootstrap
        | MemberEvent::Join
        | MemberEvent::Stopped
        | MemberEvent::Drain
        | MemberEvent::Remove
        | MemberEvent::Fail { .. } => None,
    }
}

/// Explains every step of an operation, in the order of `steps`; `None` for those that ended.
pub fn steps(steps: &[StepRow<'_>]) -> Vec<Option<Waiting>> {
    let by_key: BTreeMap<&StepKey, &StepRow<'_>> = steps.iter().map(|step| (&step.spec.key, step)).collect();
    let explain = |step: &StepRow<'_>| match step.state {
        StepState::Pending => Some(pending(step, &by_key)),
        StepState::Running
        | StepState::Backoff
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Skipped
        | StepState::Cancelled => current_step(step),
    };
    steps.iter().map(explain).collect()
}

/// Explains a step that has begun and not ended; `None` for every other one.
pub fn current_step(step: &StepRow<'_>) -> Option<Waiting> {
    match step.state {
        StepState::Running => Some(running(step)),
        StepState::Backoff => Some(backoff(step)),
        StepState::Pending | StepState::Succeeded | StepState::Failed | StepState::Skipped | StepState::Cancelled => {
            None
        }
    }
}

fn running(step: &StepRow<'_>) -> Waiting {
    let Awaited { subject, purpose, from } = awaited(step.spec);
    let since = step.started_at.unwrap_or(step.accepted_at);
    Waiting::new(format!("{subject} to {purpose}"), from, since, NextAction::watch(step.operation))
        .with_evidence(step.detail)
        .until(step.deadline_at)
}

/// The platform repeats the step; the evidence is why the last attempt ended.
fn backoff(step: &StepRow<'_>) -> Waiting {
    let what = format!("attempt {} of {}", step.attempts.saturating_add(1), step.spec.key);
    let since = step.started_at.unwrap_or(step.accepted_at);
    let why = step.fault.map(|fault| fault.summary.as_str()).or(step.detail);
    Waiting::new(what, WaitingFrom::Platform, since, NextAction::watch(step.operation))
        .with_evidence(why.or(Some("the last attempt was interrupted")))
        .until(step.not_before)
}

fn pending(step: &StepRow<'_>, by_key: &BTreeMap<&StepKey, &StepRow<'_>>) -> Waiting {
    let state = |key: &StepKey| by_key.get(key).map(|of| of.state);
    let needs: Vec<&StepKey> = step.spec.needs.iter().filter(|key| state(key) != Some(StepState::Succeeded)).collect();
    let after: Vec<&StepKey> =
        step.spec.after.iter().filter(|key| !state(key).is_some_and(StepState::is_final)).collect();
    let ends = step.spec.needs.iter().chain(&step.spec.after).filter_map(|key| by_key.get(key)?.ended_at).max();
    let since = ends.map_or(step.accepted_at, |end| end.max(step.accepted_at));
    let next = NextAction::watch(step.operation);
    let parts =
        [(&needs, "succeed"), (&after, "end")].map(|(keys, end)| named(keys).map(|keys| format!("{keys} to {end}")));
    let what = parts.into_iter().flatten().collect::<Vec<_>>().join(", and ");
    let Some(first) = needs.first().or(after.first()).copied() else {
        return Waiting::new(format!("the platform to begin {}", step.spec.key), WaitingFrom::Platform, since, next);
    };
    let first = by_key.get(first);
    let from =
        first.filter(|of| of.state == StepState::Running).map_or(WaitingFrom::Platform, |of| awaited(of.spec).from);
    let seen = first.map(|of| {
        let detail = of.detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        format!("{} is {}{detail}", of.spec.key, of.state)
    });
    Waiting::new(what, from, since, next).with_evidence(seen.as_deref())
}

/// Names the first of some steps and counts the others; `None` without any.
fn named(keys: &[&StepKey]) -> Option<String> {
    let shown: Vec<&str> = keys.iter().take(NAMED_MAX).map(|key| key.as_str()).collect();
    match keys.len().saturating_sub(NAMED_MAX) {
        0 if shown.is_empty() => None,
        0 => Some(shown.join(", ")),
        more => Some(format!("{} and {more} more", shown.join(", "))),
    }
}
