//! Derives a workload's status, and the fault that explains it, from its members and its operation. No other code decides them.

use gpuaas_model::{
    Code, Fault, FaultClass, Health, Lifecycle, MemberId, MemberState, NextAction, OperationKind, OperationState,
    Progress, Recovery, StepState,
};

use crate::{
    plan::FailureScope,
    schedule::{Ending, StepProgress, operation_failed},
    view::{MemberView, WorkloadView},
};

/// The status fields of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Position in the lifecycle.
    pub lifecycle: Lifecycle,
    /// Present phase, one of the app's.
    pub phase: String,
    /// Health, independent of the lifecycle.
    pub health: Health,
    /// Possible recovery.
    pub recovery: Recovery,
    /// Number of succeeded steps and of all steps.
    pub progress: Progress,
}

impl Status {
    /// Returns the status of a workload whose deployment is requested; `phase` is the first one of its app.
    pub fn requested(phase: String) -> Self {
        Self {
            lifecycle: Lifecycle::Requested,
            phase,
            health: Health::Progressing,
            recovery: Recovery::None,
            progress: Progress::default(),
        }
    }
}

/// The part of an operation that the status depends on.
#[derive(Clone, Debug)]
pub struct OperationView<'a> {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// State of the operation.
    pub state: OperationState,
    /// Steps with their progress.
    pub steps: &'a [StepProgress],
}

/// Returns the status of `workload` during or after `operation`, its newest one. `before` is the present content of its row: fields that
/// the operation does not determine keep their value.
pub fn status(
    before: &Status,
    workload: &WorkloadView,
    operation: Option<&OperationView<'_>>,
    fault: Option<&Fault>,
) -> Status {
    let lifecycle = operation.map_or(before.lifecycle, |operation| lifecycle(before.lifecycle, operation));
    let busy = operation.is_some_and(|operation| !operation.state.is_final());
    let health = health(lifecycle, busy, workload);
    Status {
        lifecycle,
        phase: operation.and_then(phase).unwrap_or_else(|| before.phase.clone()),
        health,
        recovery: recovery(lifecycle, health, operation, workload, fault),
        progress: operation.map_or(before.progress, progress),
    }
}

/// A change after which another fault, or none, explains a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultChange {
    /// A step of the operation failed for good.
    StepFailed {
        /// Scope of the step's failure.
        scope: FailureScope,
        /// Fault of the step.
        fault: Fault,
    },
    /// The operation ended.
    Ended(Ending),
}

/// Returns the fault that explains `workload` after `change`; `before` is the present one.
pub fn fault(
    before: Option<Fault>,
    change: FaultChange,
    workload: &WorkloadView,
    operation: &OperationView<'_>,
) -> Option<Fault> {
    match change {
        FaultChange::StepFailed { scope, fault }
            if scope != FailureScope::Member && operation_failed(operation.steps) =>
        {
            Some(fault)
        }
        FaultChange::StepFailed { .. } | FaultChange::Ended(Ending::NeedsAttention) => before,
        FaultChange::Ended(Ending::Succeeded) => None,
        // Every other operation that is cancelled keeps the workload's fault.
        FaultChange::Ended(Ending::Cancelled) => cancelled(operation.kind, workload).or(before),
    }
}

/// An operation that has ended, for the explanation of the members that it left unfinished.
#[derive(Clone, Copy, Debug)]
pub struct EndedOperation<'a> {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// How it ended.
    pub ending: Ending,
    /// Its target members.
    pub targets: &'a [MemberId],
    /// Members that its plan has steps for.
    pub planned: &'a [MemberId],
    /// Its own fault, if a step failed and it was not cancelled.
    pub cause: Option<&'a Fault>,
}

/// Returns the fault of a member that is unfinished although no operation changes it any more; `None` for other members. An operation that
/// succeeded finished its own members; a repair that made the workload run may have left out others.
///
/// A failed member that the operation did not change keeps its fault, but no longer advises to resume: `resume` would not reach it.
pub fn unfinished_member(member: &MemberView, ended: &EndedOperation<'_>, workload: &WorkloadView) -> Option<Fault> {
    if let MemberState::Failed { fault, .. } = &member.state {
        let is_resumable = ended.ending != Ending::Succeeded && ended.planned.contains(&member.id);
        let is_outdated = fault.next.resumes(&workload.name) && !is_resumable;
        let next = || NextAction::repair_or_remove_member(&workload.name, &member.name);
        return is_outdated.then(|| Fault { next: next(), ..fault.clone() });
    }
    let is_success = ended.ending == Ending::Succeeded;
    if matches!(member.state, MemberState::Stopped { .. }) {
        return stays_stopped(ended, workload).then(|| left_out(member, ended.kind, workload));
    }
    if is_success && ended.kind != OperationKind::Repair {
        return None;
    }
    match member.state {
        MemberState::Pending
        | MemberState::Preparing { .. }
        | MemberState::Bootstrapping { .. }
        | MemberState::Joining { .. }
            if is_success || !ended.targets.contains(&member.id) =>
        {
            Some(left_out(member, ended.kind, workload))
        }
        MemberState::Pending
        | MemberState::Preparing { .. }
        | MemberState::Bootstrapping { .. }
        | MemberState::Joining { .. }
        | MemberState::Removing { .. } => (!is_success).then(|| interrupted(member, ended, workload)),
        // A member whose draining was cancelled serves its role.
        MemberState::Draining { .. }
        | MemberState::Ready { .. }
        | MemberState::Drained { .. }
        | MemberState::Stopped { .. }
        | MemberState::Removed
        | MemberState::Failed { .. } => None,
    }
}

/// Returns whether no operation starts a stopped member any more: the workload runs, and a later operation has replaced the start that was
/// cancelled before this member.
fn stays_stopped(ended: &EndedOperation<'_>, workload: &WorkloadView) -> bool {
    use OperationKind as K;
    match ended.kind {
        K::Repair => ended.ending == Ending::Succeeded,
        K::Deploy | K::Decommission | K::Stop | K::Start => false,
        K::AddMember
        | K::DrainMember
        | K::UncordonMember
        | K::RemoveMember
        | K::ReplaceMember
        | K::Reconcile
        | K::Upgrade
        | K::Snapshot
        | K::Restore
        | K::RotateCertificates => workload.lifecycle == Lifecycle::Running,
    }
}

/// Explains a member that the operation was about when it ended without success.
fn interrupted(member: &MemberView, ended: &EndedOperation<'_>, workload: &WorkloadView) -> Fault {
    let kind = ended.kind;
    let next = NextAction::resume("the operation continues with what is missing", &workload.name);
    match ended.cause {
        Some(cause) => Fault {
            summary: format!("{}: operation {kind} ended before it: {}", member.name, cause.summary),
            next,
            ..cause.clone()
        },
        None => {
            let of_member = || cancellation(format!("{}: operation {kind} was cancelled", member.name), next);
            cancelled(kind, workload).unwrap_or_else(of_member)
        }
    }
}

/// Explains a member that waits for an operation that has ended, and that the newest one did not include.
fn left_out(member: &MemberView, kind: OperationKind, workload: &WorkloadView) -> Fault {
    let name = &member.name;
    Fault {
        code: Code::MemberLeftOut.to_string(),
        class: FaultClass::Repairable,
        summary: format!("{name}: the operation that was to bring it up has ended, and {kind} did not include it"),
        evidence: None,
        next: NextAction::repair_or_remove_member(&workload.name, name),
    }
}

/// Returns what a cancelled operation left; `None` if it left nothing that needs an explanation.
fn cancelled(kind: OperationKind, workload: &WorkloadView) -> Option<Fault> {
    let what = match kind {
        OperationKind::Deploy => "deployment",
        OperationKind::Decommission => "removal",
        OperationKind::Stop | OperationKind::Start => return Some(cancelled_halfway(kind, workload)),
        OperationKind::DrainMember | OperationKind::RemoveMember | OperationKind::ReplaceMember => {
            return cancelled_drain(kind, workload);
        }
        OperationKind::AddMember
        | OperationKind::UncordonMember
        | OperationKind::Reconcile
        | OperationKind::Repair
        | OperationKind::Upgrade
        | OperationKind::Snapshot
        | OperationKind::Restore
        | OperationKind::RotateCertificates => return None,
    };
    let touched = workload.members.iter().filter(|member| member.touched && member.state != MemberState::Removed);
    let left: Vec<String> = touched.map(|member| format!("{} on {}", member.name, member.machine.name)).collect();
    let left = match left.as_slice() {
        [] => "nothing was left on its nodes".to_owned(),
        left => format!("it may have left files and services of {}", left.join(", ")),
    };
    Some(cancellation(format!("the {what} was cancelled; {left}"), NextAction::resume_or_remove(&workload.name)))
}

/// Explains a stop or start that ended between its members.
fn cancelled_halfway(kind: OperationKind, workload: &WorkloadView) -> Fault {
    let stopped = |member: &&MemberView| matches!(member.state, MemberState::Stopped { .. });
    let stopped: Vec<&str> = workload.members.iter().filter(stopped).map(|member| member.name.as_str()).collect();
    let which = if stopped.is_empty() { "no member".to_owned() } else { stopped.join(", ") };
    let next = NextAction::resume(&format!("the {kind} continues with the other members"), &workload.name);
    cancellation(format!("the {kind} was cancelled; stopped: {which}"), next)
}

/// Explains a member that a cancelled operation left without new work.
fn cancelled_drain(kind: OperationKind, workload: &WorkloadView) -> Option<Fault> {
    let member = workload.members.iter().find(|member| matches!(member.state, MemberState::Draining { .. }))?;
    let next = NextAction::uncordon_or_resume(&workload.name, &member.name);
    Some(cancellation(format!("{kind} was cancelled; {} accepts no new work", member.name), next))
}

fn cancellation(summary: String, next: NextAction) -> Fault {
    let code = Code::OperationCancelled.to_string();
    Fault { code, class: FaultClass::Retryable, summary, evidence: None, next }
}

fn lifecycle(before: Lifecycle, operation: &OperationView<'_>) -> Lifecycle {
    use {OperationKind as K, OperationState as S};
    match (operation.kind, operation.state) {
        (K::Deploy, S::Queued) => Lifecycle::Requested,
        (K::Deploy, S::Running | S::Waiting) => Lifecycle::Deploying,
        (K::Deploy, S::Succeeded) => Lifecycle::Running,
        (K::Deploy, S::NeedsAttention) if !operation_failed(operation.steps) => Lifecycle::Running,
        (K::Deploy, S::NeedsAttention | S::Failed) => Lifecycle::Failed,
        (K::Deploy | K::Decommission, S::Cancelled) => Lifecycle::Cancelled,
        // Also after a failure: only its removal is left, and no repair makes it run again.
        (K::Decommission, S::Queued | S::Running | S::Waiting | S::NeedsAttention | S::Failed) => {
            Lifecycle::Decommissioning
        }
        (K::Decommission, S::Succeeded) => Lifecycle::Decommissioned,
        (K::Stop, S::Queued | S::Running | S::Waiting) => Lifecycle::Stopping,
        (K::Stop, S::Succeeded) => Lifecycle::Stopped,
        (K::Start, S::Queued | S::Running | S::Waiting) => Lifecycle::Starting,
        (K::Start | K::Repair, S::Succeeded) => Lifecycle::Running,
        // What every member needs is up; those that did not come up are its degraded members.
        (K::Start | K::Repair, S::NeedsAttention | S::Failed | S::Cancelled) if is_carried(operation.steps) => {
            Lifecycle::Running
        }
        (
            K::AddMember
            | K::DrainMember
            | K::UncordonMember
            | K::RemoveMember
            | K::ReplaceMember
            | K::Stop
            | K::Start
            | K::Reconcile
            | K::Repair
            | K::Upgrade
            | K::Snapshot
            | K::Restore
            | K::RotateCertificates,
            _,
        ) => before,
    }
}

/// Returns true if every step of operation scope succeeded: only members failed, or were left out by a cancellation.
fn is_carried(steps: &[StepProgress]) -> bool {
    let mut of_operation = steps.iter().filter(|step| step.spec.scope == FailureScope::Operation).peekable();
    of_operation.peek().is_some() && of_operation.all(|step| step.state == StepState::Succeeded)
}

fn phase(operation: &OperationView<'_>) -> Option<String> {
    let active =
        |step: &&StepProgress| matches!(step.state, StepState::Running | StepState::Backoff | StepState::Failed);
    let last_done = || operation.steps.iter().rev().find(|step| step.state == StepState::Succeeded);
    operation.steps.iter().find(active).or_else(last_done).map(|step| step.spec.phase.clone())
}

fn progress(operation: &OperationView<'_>) -> Progress {
    let done = operation.steps.iter().filter(|step| step.state == StepState::Succeeded).count();
    Progress {
        completed: u32::try_from(done).unwrap_or(u32::MAX),
        total: u32::try_from(operation.steps.len()).unwrap_or(u32::MAX),
    }
}

/// Derives the health. Members that are not well make a running workload `degraded`, never `failed`.
fn health(lifecycle: Lifecycle, busy: bool, workload: &WorkloadView) -> Health {
    let unwell = |member: &MemberView| member.is_present() && member.is_unwell();
    match lifecycle {
        Lifecycle::Failed => Health::Failed,
        Lifecycle::Requested | Lifecycle::Deploying => {
            if workload.members.iter().any(unwell) {
                Health::Degraded
            } else {
                Health::Progressing
            }
        }
        Lifecycle::Decommissioning | Lifecycle::Stopping | Lifecycle::Starting if busy => Health::Progressing,
        // The operation ended halfway: some members are stopped and others are not.
        Lifecycle::Decommissioning | Lifecycle::Stopping | Lifecycle::Starting => Health::Degraded,
        Lifecycle::Stopped => Health::Healthy,
        Lifecycle::Decommissioned | Lifecycle::Cancelled => Health::None,
        Lifecycle::Running => {
            // A start that ended before it reached them left them stopped.
            let left_stopped = |member: &MemberView| !busy && matches!(member.state, MemberState::Stopped { .. });
            if workload.members.iter().any(|member| unwell(member) || left_stopped(member)) {
                Health::Degraded
            } else if busy {
                Health::Progressing
            } else {
                Health::Healthy
            }
        }
    }
}

fn recovery(
    lifecycle: Lifecycle,
    health: Health,
    operation: Option<&OperationView<'_>>,
    workload: &WorkloadView,
    fault: Option<&Fault>,
) -> Recovery {
    let open = operation.filter(|operation| !operation.state.is_final());
    if open.is_some_and(|open| open.steps.iter().any(|step| step.state == StepState::Backoff)) {
        return Recovery::Retrying;
    }
    if open.is_some_and(|open| open.kind == OperationKind::Reconcile) {
        return Recovery::Reconciling;
    }
    // A member that serves its role can have a fault, too: for example a budget that blocks its draining.
    let is_well = matches!(health, Health::Healthy | Health::Progressing) && fault.is_none();
    if lifecycle == Lifecycle::Decommissioned || is_well {
        return Recovery::None;
    }
    let worst = workload
        .members
        .iter()
        .filter_map(|member| member.state.fault().or(member.fault.as_ref()))
        .chain(fault)
        .map(|fault| fault.class)
        .max_by_key(|class| match class {
            FaultClass::Retryable => 0,
            FaultClass::Repairable => 1,
            FaultClass::Manual => 2,
            FaultClass::Terminal => 3,
        });
    match worst {
        Some(FaultClass::Repairable) if may_be_repaired(lifecycle) => Recovery::RepairAvailable,
        Some(FaultClass::Manual) => Recovery::ManualIntervention,
        Some(FaultClass::Terminal) => Recovery::Terminal,
        Some(FaultClass::Retryable | FaultClass::Repairable) | None => {
            let resumable = |of: &OperationView<'_>| of.state.is_final() && of.state != OperationState::Succeeded;
            if operation.is_some_and(resumable) { Recovery::Resumable } else { Recovery::None }
        }
    }
}

/// Returns true if a repair is possible now or when the open deployment has ended.
const fn may_be_repaired(lifecycle: Lifecycle) -> bool {
    match lifecycle {
        Lifecycle::Requested | Lifecycle::Deploying | Lifecycle::Running | Lifecycle::Starting | Lifecycle::Failed => {
            true
        }
        Lifecycle::Stopping
        | Lifecycle::Stopped
        | Lifecycle::Decommissioning
        | Lifecycle::Decommissioned
        | Lifecycle::Cancelled => false,
    }
}

#[cfg(test)]
mod tests;
