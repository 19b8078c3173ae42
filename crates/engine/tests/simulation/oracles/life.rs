//! Checks the end of a whole life: whatever people asked for and whatever failed, these hold.

use std::collections::BTreeMap;

use gpuaas_model::{AllocationState, Code, Health, Lifecycle, MemberState, OperationState};
use gpuaas_store::StoreError;

use super::{Oracle, Rows, drift, explained, judge, judgments};
use crate::simulation::Simulation;

pub(super) async fn check(simulation: &Simulation, rows: &Rows) -> Result<(), StoreError> {
    judge(simulation, Oracle::Mutations, |violations| check_one_mutation(rows, violations));
    judge(simulation, Oracle::TerminalStates, |violations| {
        check_members(rows, violations);
        check_ended(rows, violations);
    });
    judge(simulation, Oracle::Allocations, |violations| check_allocations(rows, violations));
    judge(simulation, Oracle::Transitions, |violations| check_transitions(rows, violations));
    judge(simulation, Oracle::Residue, |violations| check_released_nodes(simulation, rows, violations));
    let now = simulation.scheduler.now();
    judge(simulation, Oracle::Explained, |violations| explained::check_end(rows, now, violations));
    judge(simulation, Oracle::Status, |violations| check_status(rows, violations));
    judge(simulation, Oracle::Drift, |violations| drift::check(simulation, rows, violations));
    judge(simulation, Oracle::Judgments, |violations| judgments::check(simulation, rows, violations));
    if rows.workload.lifecycle == Lifecycle::Decommissioned {
        let kept = simulation.store.read().await?.secrets_of(rows.workload.id).await?;
        judge(simulation, Oracle::Secrets, |violations| {
            violations.extend(kept.iter().map(|secret| format!("the secret {} outlives its workload", secret.name)));
        });
    }
    Ok(())
}

/// Never two mutations on one workload: each operation was accepted after the one before it had ended, and took its place.
fn check_one_mutation(rows: &Rows, violations: &mut Vec<String>) {
    for two in rows.operations.windows(2) {
        let ((before, _), (after, _)) = (&two[0], &two[1]);
        if before.ended_at.is_none_or(|ended| ended > after.created_at) {
            violations.push(format!("{} was accepted while {} had not ended", after.kind, before.kind));
        }
        if before.state == OperationState::NeedsAttention {
            violations.push(format!("{} needs attention, although {} took its place", before.kind, after.kind));
        }
    }
}

/// Nothing is under way without an operation.
fn check_members(rows: &Rows, violations: &mut Vec<String>) {
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
    }
}

/// Every operation, step and allocation has reached a final state, or rests.
fn check_ended(rows: &Rows, violations: &mut Vec<String>) {
    for (operation, steps) in &rows.operations {
        if !operation.state.is_final() || operation.ended_at.is_none() {
            violations.push(format!("{} is {}", operation.kind, operation.state));
        }
        let open = steps.iter().filter(|step| !step.state.is_final());
        violations.extend(open.map(|step| format!("step {} of {} is {}", step.spec.key, operation.kind, step.state)));
    }
    let rests = |state| matches!(state, AllocationState::Active | AllocationState::Released | AllocationState::Failed);
    let moving = rows.allocations.iter().filter(|allocation| !rests(allocation.state));
    violations.extend(moving.map(|allocation| format!("an allocation is {}", allocation.state)));
}

/// No allocation has two members, and each that a member uses is active.
fn check_allocations(rows: &Rows, violations: &mut Vec<String>) {
    let mut used = BTreeMap::new();
    for member in rows.members.iter().filter(|member| member.state != MemberState::Removed) {
        let held = rows.allocations.iter().find(|held| Some(held.id) == member.place.allocation());
        if let Some(held) = held.filter(|held| held.state != AllocationState::Active) {
            violations.push(format!("{} uses an allocation that is {}", member.name(), held.state));
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

/// No node with a released last allocation has residue.
fn check_released_nodes(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    // By node; allocations are sorted by time.
    let last: BTreeMap<_, _> = rows.allocations.iter().map(|allocation| (allocation.node, allocation)).collect();
    for allocation in last.values().filter(|allocation| allocation.state == AllocationState::Released) {
        let node = simulation.node(allocation.node);
        if !node.machine().is_clean() {
            violations.push(format!("{} was released with residue", node.name));
        }
    }
}

/// A running workload is degraded if, and only if, one of its members is degraded or failed.
fn check_status(rows: &Rows, violations: &mut Vec<String>) {
    let is_present = |state: &MemberState| !matches!(state, MemberState::Removing { .. } | MemberState::Removed);
    let unwell = rows.members.iter().find(|member| {
        let is_unwell = matches!(member.health, Health::Degraded | Health::Failed);
        is_present(&member.state) && (is_unwell || matches!(member.state, MemberState::Failed { .. }))
    });
    let health = rows.workload.health;
    if rows.workload.lifecycle == Lifecycle::Running && (health == Health::Degraded) != unwell.is_some() {
        let unwell = unwell.map_or_else(|| "no member".to_owned(), gpuaas_store::MemberRecord::name);
        violations.push(format!("the workload is {health}, and {unwell} is degraded or failed"));
    }
}
