//! Checks that streams have no gaps, that every task ends once, and that events agree with the rows.

use std::collections::BTreeMap;

use gpuaas_model::{AuditAction, EventKind, StepState, TaskState};
use gpuaas_planner::{StepProgress, operation_failed};
use gpuaas_store::{EventRecord, StepRecord};
use gpuaas_wire::task::TaskOutcome;
use serde_json::Value;

use super::Rows;

/// Checks the streams, and that they agree with the rows.
pub(super) fn check(rows: &Rows, violations: &mut Vec<String>) {
    for events in &rows.streams {
        check_order("event", events.iter().map(|event| (event.sequence, event.at)), violations);
    }
    check_order("audit record", rows.audits.iter().map(|audit| (audit.sequence, audit.at)), violations);
    check_tasks(rows, violations);
    check_progress(rows, violations);
    check_last_events(rows, violations);
}

/// Checks that steps ran in the order of their plan.
pub(super) fn check_step_order(rows: &Rows, violations: &mut Vec<String>) {
    check_needs(rows, violations);
    check_failure_scopes(rows, violations);
}

/// Checks that the start and the end of every task are audited once.
pub(super) fn check_audit(rows: &Rows, violations: &mut Vec<String>) {
    let mut audited: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for audit in &rows.audits {
        let Some(task) = audit.metadata["task"].as_str() else { continue };
        let (begun, ended) = audited.entry(task).or_default();
        match audit.action {
            AuditAction::TaskDispatch => *begun += 1,
            AuditAction::TaskComplete => *ended += 1,
            _ => {}
        }
    }
    for task in &rows.tasks {
        let found = audited.get(task.id.to_string().as_str()).copied().unwrap_or_default();
        if found != (1, 1) {
            violations.push(format!("{} {}, {}, is audited as {found:?}", task.task_type, task.id, task.state));
        }
    }
}

fn check_order(
    what: &str,
    numbered: impl Iterator<Item = (u64, gpuaas_model::Timestamp)>,
    violations: &mut Vec<String>,
) {
    let mut before = (0, gpuaas_model::Timestamp::from_millis(0));
    for (sequence, at) in numbered {
        if sequence != before.0 + 1 || at < before.1 {
            violations.push(format!("{what} {sequence} of {at} follows {} of {}", before.0, before.1));
        }
        before = (sequence, at);
    }
}

/// Checks that every task is in a final state, has an outcome of that state, and was announced as dispatched once and as ended once.
fn check_tasks(rows: &Rows, violations: &mut Vec<String>) {
    for task in &rows.tasks {
        let fits = match (&task.outcome, task.state) {
            (Some(TaskOutcome::Succeeded { .. }), state) => state == TaskState::Succeeded,
            (Some(TaskOutcome::Failed { .. }), state) => state.is_final() && state != TaskState::Succeeded,
            (None, state) => state == TaskState::Interrupted,
        };
        if !fits || task.ended_at.is_none_or(|ended| ended < task.created_at) {
            violations.push(format!("{} {} is {} with another outcome", task.task_type, task.id, task.state));
        }
        let id = task.id.to_string();
        // Tasks without a project appear only in the platform's stream.
        let streams = if task.project.is_some() { &rows.streams[..] } else { &rows.streams[..1] };
        for events in streams {
            let announced: Vec<&str> = about(events, EventKind::TaskChanged, &id)
                .filter_map(|event| event.data.get("state").and_then(Value::as_str))
                .collect();
            if announced != ["dispatched", task.state.as_str()] {
                violations
                    .push(format!("{} {} is {}, but announced as {announced:?}", task.task_type, task.id, task.state));
            }
        }
    }
}

/// Checks that a step's attempts are numbered without gaps and within their limit, that none follows one that succeeded, and that fences do not
/// decrease.
pub(super) fn check_attempts(rows: &Rows, violations: &mut Vec<String>) {
    for step in rows.operations.iter().flat_map(|(_, steps)| steps) {
        if step.attempts.saturating_sub(step.interruptions) > step.spec.retry.attempts_max {
            violations.push(format!("{} made {} attempts", step.spec.key, step.attempts));
        }
        let tasks: Vec<_> = rows.tasks.iter().filter(|task| task.step == Some(step.id)).collect();
        if tasks.is_empty() {
            continue;
        }
        let attempts: Vec<u32> = tasks.iter().map(|task| task.attempt).collect();
        if attempts != (1..=step.attempts).collect::<Vec<_>>() {
            violations.push(format!("{} made attempts {attempts:?} of {}", step.spec.key, step.attempts));
        }
        if tasks.iter().rev().skip(1).any(|task| task.state == TaskState::Succeeded) {
            violations.push(format!("{} was tried again after it had succeeded", step.spec.key));
        }
        if tasks.windows(2).any(|two| two[1].fence < two[0].fence) {
            violations.push(format!("{} was signed under a lower fence than before", step.spec.key));
        }
    }
}

/// Checks that a step starts only after every step in `needs` has succeeded and every step in `after` has ended.
fn check_needs(rows: &Rows, violations: &mut Vec<String>) {
    for (_, steps) in &rows.operations {
        for step in steps.iter().filter(|step| step.started_at.is_some()) {
            let of = |key: &gpuaas_planner::StepKey| steps.iter().find(|other| other.spec.key == *key);
            let ended_before = |key: &gpuaas_planner::StepKey, must_succeed: bool| {
                of(key).is_some_and(|other| {
                    let well = !must_succeed || other.state == StepState::Succeeded;
                    well && other.ended_at.is_some_and(|ended| Some(ended) <= step.started_at)
                })
            };
            let needs = step.spec.needs.iter().map(|key| (key, true));
            let gates = needs.chain(step.spec.after.iter().map(|key| (key, false)));
            for (key, must_succeed) in gates {
                if !ended_before(key, must_succeed) {
                    violations.push(format!("{} began before {key} had ended as required", step.spec.key));
                }
            }
        }
    }
}

/// Checks that no step without an `after` begins once the operation has failed by the scopes of the steps that have failed until then.
fn check_failure_scopes(rows: &Rows, violations: &mut Vec<String>) {
    for (_, steps) in &rows.operations {
        for step in steps.iter().filter(|step| step.spec.after.is_empty()) {
            let Some(began) = step.started_at else { continue };
            let before = |other: &&StepRecord| {
                other.state == StepState::Failed && other.ended_at.is_some_and(|ended| ended < began)
            };
            let failed: Vec<StepProgress> = steps.iter().filter(before).map(progress).collect();
            if operation_failed(&failed) {
                violations.push(format!("{} began after its operation had failed", step.spec.key));
            }
        }
    }
}

fn progress(step: &StepRecord) -> StepProgress {
    StepProgress { spec: step.spec.clone(), state: step.state, attempts: step.attempts, not_before: step.not_before }
}

/// Checks that a workload's progress never decreases within an operation and never exceeds its total.
fn check_progress(rows: &Rows, violations: &mut Vec<String>) {
    // By correlation, because an operation may be accepted in the millisecond in which the one before it ends.
    let operation_of = |event: &EventRecord| {
        rows.operations.iter().map(|(of, _)| of.correlation).find(|of| Some(*of) == event.correlation)
    };
    let (mut before, mut operation) = (0, None);
    for event in rows.streams.iter().flatten().filter(|event| event.kind == EventKind::WorkloadChanged) {
        let of = operation_of(event).or(operation);
        if of != operation {
            (before, operation) = (0, of);
        }
        let number = |name: &str| event.data["progress"][name].as_u64();
        let (completed, total) = (number("completed").unwrap_or(0), number("total").unwrap_or(0));
        if completed < before || completed > total {
            violations.push(format!("progress went from {before} to {completed} of {total}"));
        }
        before = completed;
    }
}

/// Checks that the last event about each object agrees with its row.
fn check_last_events(rows: &Rows, violations: &mut Vec<String>) {
    let mut last: BTreeMap<(EventKindName, &str), &EventRecord> = BTreeMap::new();
    for event in rows.streams.iter().flatten() {
        last.insert((event.kind.as_str(), &event.subject_id), event);
    }
    let mut check_last = |kind: EventKind, id: String, field: &str, row: &str| {
        let announced = last.get(&(kind.as_str(), id.as_str())).and_then(|event| event.data.get(field)?.as_str());
        if announced.is_some_and(|reported| reported != row) {
            violations.push(format!("the last {kind} of {id} has {field} {announced:?}, but its row has {row}"));
        }
    };
    for (operation, steps) in &rows.operations {
        let last_kind = operation.superseded_by.map_or(EventKind::OperationEnded, |_| EventKind::OperationSuperseded);
        check_last(last_kind, operation.id.to_string(), "state", operation.state.as_str());
        for step in steps {
            check_last(EventKind::StepChanged, step.id.to_string(), "state", step.state.as_str());
        }
    }
    for member in &rows.members {
        check_last(EventKind::MemberChanged, member.id.to_string(), "state", &member.state.name().to_string());
        check_last(EventKind::MemberChanged, member.id.to_string(), "health", member.health.as_str());
    }
    let workload = &rows.workload;
    check_last(EventKind::WorkloadChanged, workload.id.to_string(), "lifecycle", workload.lifecycle.as_str());
    check_last(EventKind::WorkloadChanged, workload.id.to_string(), "health", workload.health.as_str());
    for node in &rows.nodes {
        let connectivity = node.connectivity.as_str();
        check_last(EventKind::NodeConnectivityChanged, node.id.to_string(), "connectivity", connectivity);
    }
}

type EventKindName = &'static str;

fn about<'a>(events: &'a [EventRecord], kind: EventKind, id: &'a str) -> impl Iterator<Item = &'a EventRecord> {
    events.iter().filter(move |event| event.kind == kind && event.subject_id == id)
}
