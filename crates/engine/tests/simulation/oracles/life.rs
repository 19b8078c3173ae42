//! Checks the end of a whole life: whatever people asked for and whatever failed, these hold.

use std::collections::BTreeMap;

use gpuaas_model::{AllocationState, Code, Lifecycle, MemberState, Recovery};

use super::Rows;
use crate::simulation::Simulation;

pub(super) fn check(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    check_one_mutation(rows, violations);
    check_members(rows, violations);
    check_transitions(rows, violations);
    check_released_nodes(simulation, rows, violations);
    check_explained(rows, violations);
}

/// Never two mutations on one workload: each operation was accepted after the one before it had ended.
fn check_one_mutation(rows: &Rows, violations: &mut Vec<String>) {
    for two in rows.operations.windows(2) {
        let ((before, _), (after, _)) = (&two[0], &two[1]);
        if before.ended_at.is_none_or(|ended| ended > after.created_at) {
            violations.push(format!("{} was accepted while {} had not ended", after.kind, before.kind));
        }
    }
}

/// Nothing is under way without an operation, and no allocation has two members.
fn check_members(rows: &Rows, violations: &mut Vec<String>) {
    let mut used = BTreeMap::new();
    let is_deployed = !matches!(rows.workload.lifecycle, Lifecycle::Failed | Lifecycle::Cancelled);
    for member in rows.members.iter().filter(|member| member.state != MemberState::Removed) {
        let is_under_way = match member.state {
            MemberState::Pending => is_deployed,
            MemberState::Preparing { .. }
            | MemberState::Bootstrapping { .. }
            | MemberState::Joining { .. }
            | MemberState::Removing { .. } => true,
            MemberState::Ready { .. }
            | MemberState::Stopped { .. }
            | MemberState::Draining { .. }
            | MemberState::Drained { .. }
            | MemberState::Removed
            | MemberState::Failed { .. } => false,
        };
        if is_under_way {
            violations.push(format!("{} is {} without an operation", member.name(), member.state.name()));
        }
        if let Some(other) = used.insert(member.place.allocation(), member.name()) {
            violations.push(format!("{other} and {} have the same allocation", member.name()));
        }
    }
}

/// No plan requested an illegal transition.
fn check_transitions(rows: &Rows, violations: &mut Vec<String>) {
    for step in rows.operations.iter().flat_map(|(_, steps)| steps) {
        if step.fault.as_ref().is_some_and(|fault| fault.code == Code::IllegalTransition.as_str()) {
            let fault = step.fault.as_ref().map_or("", |fault| fault.summary.as_str());
            violations.push(format!("{} failed: {fault}", step.spec.key));
        }
    }
}

/// No node of a released allocation has residue.
fn check_released_nodes(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    let released = rows.allocations.iter().filter(|allocation| allocation.state == AllocationState::Released);
    for allocation in released {
        let node = simulation.node(allocation.node);
        if !node.machine().is_clean() {
            violations.push(format!("{} was released with residue", node.name));
        }
    }
}

/// A workload that is not at rest says what can be done.
fn check_explained(rows: &Rows, violations: &mut Vec<String>) {
    let workload = &rows.workload;
    let is_at_rest = match workload.lifecycle {
        Lifecycle::Running | Lifecycle::Stopped | Lifecycle::Decommissioned => true,
        Lifecycle::Requested
        | Lifecycle::Deploying
        | Lifecycle::Stopping
        | Lifecycle::Starting
        | Lifecycle::Decommissioning
        | Lifecycle::Failed
        | Lifecycle::Cancelled => false,
    };
    if !is_at_rest && (workload.recovery == Recovery::None || workload.fault.is_none()) {
        violations.push(format!("it is {} and does not say why or what to do", workload.lifecycle));
    }
}
