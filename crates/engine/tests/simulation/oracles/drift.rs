//! Checks what the platform did about drift, and what it left.

use std::time::Duration;

use gpuaas_model::{Lifecycle, OperationKind, OperationState, OwnActor, TaskState, TaskType, Timestamp};
use gpuaas_planner::{
    StepAction,
    drift::{ATTEMPTS_MAX, DriftSource, WINDOW},
};

use super::{Rows, judgments::is_followed};
use crate::simulation::Simulation;

/// The tasks of a reconciliation: it restarts and installs nothing.
const OF_RECONCILIATION: [TaskType; 3] = [TaskType::Rke2Configure, TaskType::Rke2Enable, TaskType::Rke2KubeconfigRead];
/// The platform checks nodes no more after this many failed checks in a row, until the next hint.
const FAILURES_MAX: usize = 3;
/// Failed checks in a row take place within this time.
const FAILURES_WITHIN: Duration = Duration::from_secs(180);

pub(super) fn check(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    check_reconciliations(rows, violations);
    check_bound(simulation, rows, violations);
    if rows.workload.lifecycle == Lifecycle::Running {
        check_hosts(simulation, rows, violations);
        check_labels(simulation, rows, violations);
    }
}

/// The platform starts nothing but reconciliations, and these restart and install nothing.
fn check_reconciliations(rows: &Rows, violations: &mut Vec<String>) {
    for (operation, steps) in &rows.operations {
        let is_reconciliation = operation.kind == OperationKind::Reconcile;
        let is_own = operation.requested_by == OwnActor::ControlPlane.to_string();
        if operation.by_platform.is_some() != is_own || (is_own && !is_reconciliation) {
            violations.push(format!("{} of {} is taken for the platform's", operation.kind, operation.requested_by));
        }
        for step in steps.iter().filter(|_| is_reconciliation) {
            if let StepAction::NodeTask { task, .. } = &step.spec.action
                && !OF_RECONCILIATION.contains(task)
            {
                violations.push(format!("a reconciliation runs {task}"));
            }
        }
    }
}

/// The platform reconciles a workload at most three times an hour. One that yielded to a person does not count.
fn check_bound(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    let mut counted = Vec::new();
    for (operation, _) in &rows.operations {
        match &operation.by_platform {
            Some(own) if own.yields => simulation.count("platform reconciliations that yielded"),
            Some(_) => counted.push(operation.created_at),
            None => {}
        }
    }
    for two in counted.windows(ATTEMPTS_MAX + 1) {
        if two[ATTEMPTS_MAX].since(two[0]) < WINDOW {
            violations.push(format!("the platform reconciled more than {ATTEMPTS_MAX} times within an hour"));
        }
    }
    counted.iter().for_each(|_| simulation.count("platform reconciliations"));
}

/// No host of a member in service deviates of which the platform took a hint, unless it says so.
fn check_hosts(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    for member in rows.members.iter().filter(|member| member.state.is_in_service()) {
        let Some(node) = member.place.node().map(|node| simulation.node(node)) else { continue };
        let (deviates, hinted_at) = {
            let machine = node.machine();
            (machine.deviates(), machine.hinted_at)
        };
        let Some(hinted_at) = hinted_at.filter(|_| deviates) else { continue };
        if !is_named(rows, DriftSource::Node(member.id)) && !gave_up(rows, hinted_at) {
            let what = format!("{} deviates on {}, the platform took a hint at {hinted_at}", member.name(), node.name);
            violations.push(format!("{what}, and its row says {:?}", rows.workload.drift));
        }
    }
}

/// No KubeNode of a member in service lacks its labels, unless the platform says so.
fn check_labels(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    if !is_followed(simulation, rows) || is_named(rows, DriftSource::Cluster) {
        return;
    }
    for member in rows.members.iter().filter(|member| member.state.is_in_service()) {
        let Some(node) = member.place.node().map(|node| simulation.node(node)) else { continue };
        if simulation.kube().has_lost_labels(&node.name) {
            violations.push(format!("the KubeNode of {} lacks its labels: {:?}", member.name(), rows.workload.drift));
        }
    }
}

/// Returns true if the row has drift of this source, and the platform may not correct it any more or the workload shows a fault. While a person
/// can resume an operation, the platform leaves drift to that person.
fn is_named(rows: &Rows, source: DriftSource) -> bool {
    let may_reconcile = rows
        .operations
        .last()
        .is_none_or(|(newest, _)| newest.state == OperationState::Succeeded || newest.by_platform.is_some());
    let is_seen = rows.workload.drift.seen.iter().any(|seen| seen.source == source);
    is_seen && (rows.workload.fault.is_some() || !may_reconcile)
}

/// Returns true if so many checks failed that the platform waits for another hint.
fn gave_up(rows: &Rows, hinted_at: Timestamp) -> bool {
    let failed = rows.tasks.iter().filter(|task| {
        let is_check = task.task_type == TaskType::Rke2Observe && task.state != TaskState::Succeeded;
        is_check && task.created_at.plus(FAILURES_WITHIN) >= hinted_at
    });
    failed.count() >= FAILURES_MAX
}
