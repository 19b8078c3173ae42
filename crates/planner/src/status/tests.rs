//! The complete table of a workload's status: lifecycles by operation, health by members, recovery by faults.

use gpuaas_model::{NextAction, Timestamp};

use super::*;
use crate::{
    plan::{FailureScope, StepSpec},
    test_steps,
    test_views::{self, workload},
};

const SINCE: Timestamp = Timestamp::from_millis(1);

fn fault(class: FaultClass) -> Fault {
    let next = NextAction::text("look");
    Fault { code: "it_broke".into(), class, summary: "it broke".into(), evidence: None, next }
}

fn member(state: MemberState, health: Health) -> MemberView {
    MemberView { health, own_health: health, ..test_views::member("server-1", 1, state) }
}

fn step(phase: &str, state: StepState, scope: FailureScope) -> StepProgress {
    let spec = StepSpec { scope, ..test_steps::step(phase, phase) };
    StepProgress { spec, state, attempts: 1, not_before: None }
}

const BEFORE: Status = Status {
    lifecycle: Lifecycle::Running,
    phase: String::new(),
    health: Health::Healthy,
    recovery: Recovery::None,
    progress: Progress { completed: 0, total: 0 },
};

fn of(kind: OperationKind, state: OperationState, steps: &[StepProgress], members: Vec<MemberView>) -> Status {
    status(&BEFORE, &workload(members), Some(&OperationView { kind, state, steps }), None)
}

fn well() -> MemberView {
    member(MemberState::Ready { since: SINCE }, Health::Healthy)
}

#[test]
fn deployment_fails_only_with_a_step_of_operation_scope() {
    let lifecycle = |state, steps: &[StepProgress]| of(OperationKind::Deploy, state, steps, Vec::new()).lifecycle;
    let (whole, part) = (FailureScope::Operation, FailureScope::Member);
    assert_eq!(lifecycle(OperationState::Queued, &[]), Lifecycle::Requested);
    assert_eq!(lifecycle(OperationState::Running, &[]), Lifecycle::Deploying);
    assert_eq!(lifecycle(OperationState::Waiting, &[]), Lifecycle::Deploying);
    assert_eq!(lifecycle(OperationState::Succeeded, &[]), Lifecycle::Running);
    assert_eq!(lifecycle(OperationState::Cancelled, &[]), Lifecycle::Cancelled);
    let needs_attention = |steps: &[StepProgress]| lifecycle(OperationState::NeedsAttention, steps);
    assert_eq!(needs_attention(&[step("join", StepState::Failed, part.clone())]), Lifecycle::Running);
    assert_eq!(needs_attention(&[step("bootstrap", StepState::Failed, whole.clone())]), Lifecycle::Failed);
    let others = [step("bootstrap", StepState::Succeeded, whole), step("join", StepState::Failed, part)];
    assert_eq!(needs_attention(&others), Lifecycle::Running);
}

#[test]
fn other_operations_set_their_lifecycle() {
    let lifecycle = |kind, state| of(kind, state, &[], Vec::new()).lifecycle;
    use {OperationKind as K, OperationState as S};
    assert_eq!(lifecycle(K::Decommission, S::Running), Lifecycle::Decommissioning);
    assert_eq!(lifecycle(K::Decommission, S::Succeeded), Lifecycle::Decommissioned);
    assert_eq!(lifecycle(K::Decommission, S::NeedsAttention), Lifecycle::Decommissioning);
    assert!(!crate::lifecycle::allows(K::Repair, lifecycle(K::Decommission, S::Failed)), "a repair would make it run");
    assert_eq!(lifecycle(K::Decommission, S::Cancelled), Lifecycle::Cancelled);
    assert_eq!(lifecycle(K::Stop, S::Waiting), Lifecycle::Stopping);
    assert_eq!(lifecycle(K::Stop, S::Succeeded), Lifecycle::Stopped);
    assert_eq!(lifecycle(K::Start, S::Queued), Lifecycle::Starting);
    assert_eq!(lifecycle(K::Start, S::Succeeded), Lifecycle::Running);
    assert_eq!(lifecycle(K::Stop, S::NeedsAttention), BEFORE.lifecycle);
    assert_eq!(lifecycle(K::AddMember, S::NeedsAttention), BEFORE.lifecycle);
}

#[test]
fn workload_runs_after_a_start_whose_members_alone_failed() {
    let starting = Status { lifecycle: Lifecycle::Starting, ..BEFORE };
    let whole = |state| step("server", state, FailureScope::Operation);
    let part = |state| step("agent", state, FailureScope::Member);
    let failed = || member(MemberState::Failed { since: SINCE, fault: fault(FaultClass::Repairable) }, Health::Failed);
    let after = |state, steps: &[StepProgress]| {
        let operation = OperationView { kind: OperationKind::Start, state, steps };
        let status = status(&starting, &workload(vec![well(), failed()]), Some(&operation), None);
        (status.lifecycle, status.health, status.recovery)
    };
    use {Health as H, Lifecycle as L, OperationState as S, Recovery as R, StepState as T};
    let usable = (L::Running, H::Degraded, R::RepairAvailable);
    assert_eq!(after(S::NeedsAttention, &[whole(T::Succeeded), part(T::Failed)]), usable);
    assert_eq!(
        after(S::Failed, &[whole(T::Succeeded), part(T::Failed)]),
        usable,
        "once a later operation took its place"
    );
    assert_eq!(after(S::Cancelled, &[whole(T::Succeeded), part(T::Skipped)]), usable);
    assert_eq!(after(S::NeedsAttention, &[whole(T::Failed), part(T::Skipped)]).0, L::Starting);
    assert_eq!(after(S::Cancelled, &[whole(T::Skipped), part(T::Skipped)]).0, L::Starting);
    assert_eq!(after(S::Running, &[whole(T::Succeeded), part(T::Running)]).0, L::Starting);
    let stopped = || vec![well(), member(MemberState::Stopped { since: SINCE }, Health::Healthy)];
    let at_rest = |state| of(OperationKind::Start, state, &[whole(T::Succeeded)], stopped());
    assert_eq!((at_rest(S::Cancelled).lifecycle, at_rest(S::Cancelled).health), (L::Running, H::Degraded));
    assert_eq!(of(OperationKind::DrainMember, S::Running, &[], stopped()).health, H::Progressing, "it may start now");
}

#[test]
fn running_cluster_with_a_failed_member_is_degraded_and_never_failed() {
    let failed = || member(MemberState::Failed { since: SINCE, fault: fault(FaultClass::Manual) }, Health::Failed);
    let health = |state, members| of(OperationKind::AddMember, state, &[], members).health;
    let over = OperationState::Succeeded;
    assert_eq!(health(over, vec![well(), failed()]), Health::Degraded);
    assert_eq!(health(over, vec![well(), member(MemberState::Pending, Health::Degraded)]), Health::Degraded);
    assert_eq!(health(over, vec![well(), member(MemberState::Pending, Health::Failed)]), Health::Degraded);
    assert_eq!(health(over, vec![well(), member(MemberState::Removed, Health::Failed)]), Health::Healthy);
    assert_eq!(health(over, vec![well()]), Health::Healthy);
    assert_eq!(health(OperationState::Running, vec![well()]), Health::Progressing);
    let deploying = |members| of(OperationKind::Deploy, OperationState::Running, &[], members).health;
    assert_eq!(deploying(vec![well()]), Health::Progressing);
    assert_eq!(deploying(vec![well(), failed()]), Health::Degraded);
    let at_rest = |kind, state| of(kind, state, &[], vec![failed()]).health;
    assert_eq!(at_rest(OperationKind::Stop, OperationState::Succeeded), Health::Healthy);
    assert_eq!(at_rest(OperationKind::Decommission, OperationState::Running), Health::Progressing);
}

#[test]
fn removed_or_cancelled_workload_has_no_health() {
    let ended = |kind, state| {
        let status = of(kind, state, &[], vec![member(MemberState::Removed, Health::None)]);
        (status.lifecycle, status.health, status.recovery)
    };
    use {Health as H, Lifecycle as L, OperationKind as K, OperationState as S, Recovery as R};
    assert_eq!(ended(K::Decommission, S::Succeeded), (L::Decommissioned, H::None, R::None));
    assert_eq!(ended(K::Decommission, S::Cancelled), (L::Cancelled, H::None, R::Resumable));
    assert_eq!(ended(K::Deploy, S::Cancelled), (L::Cancelled, H::None, R::Resumable));
}

#[test]
fn phase_is_of_the_active_step_or_the_last_succeeded_one() {
    let phase = |steps: &[StepProgress]| of(OperationKind::Deploy, OperationState::Running, steps, Vec::new()).phase;
    let step = |name: &str, state| step(name, state, FailureScope::Operation);
    let (done, pending) = (StepState::Succeeded, StepState::Pending);
    assert_eq!(phase(&[step("one", done), step("two", StepState::Running), step("three", pending)]), "two");
    assert_eq!(phase(&[step("one", done), step("two", StepState::Backoff)]), "two");
    assert_eq!(phase(&[step("one", done), step("two", StepState::Failed)]), "two");
    assert_eq!(phase(&[step("one", done), step("two", done), step("three", pending)]), "two");
    let before = Status { phase: "old".into(), ..BEFORE };
    let nothing = OperationView { kind: OperationKind::Deploy, state: OperationState::Queued, steps: &[] };
    assert_eq!(status(&before, &workload(Vec::new()), Some(&nothing), None).phase, "old");
    assert_eq!(status(&before, &workload(Vec::new()), None, None).phase, "old");
}

#[test]
fn progress_counts_the_steps_that_succeeded() {
    let step = |state| step("p", state, FailureScope::Member);
    let steps = [step(StepState::Succeeded), step(StepState::Skipped), step(StepState::Succeeded)];
    let counted = of(OperationKind::Deploy, OperationState::Running, &steps, Vec::new()).progress;
    assert_eq!(counted, Progress { completed: 2, total: 3 });
}

#[test]
fn recovery_follows_the_worst_fault() {
    let failed = |class| member(MemberState::Failed { since: SINCE, fault: fault(class) }, Health::Failed);
    let recovery = |members| of(OperationKind::AddMember, OperationState::NeedsAttention, &[], members).recovery;
    use {FaultClass as F, Recovery as R};
    assert_eq!(recovery(vec![well()]), R::None);
    assert_eq!(recovery(vec![failed(F::Retryable)]), R::Resumable);
    assert_eq!(recovery(vec![failed(F::Manual), failed(F::Retryable)]), R::ManualIntervention);
    assert_eq!(recovery(vec![failed(F::Manual), failed(F::Terminal), failed(F::Manual)]), R::Terminal);
    assert_eq!(recovery(vec![member(MemberState::Pending, Health::Degraded)]), R::Resumable);
    let idle = of(OperationKind::AddMember, OperationState::Succeeded, &[], vec![failed(F::Retryable)]);
    assert_eq!(idle.recovery, R::None, "no operation can be resumed");
    let of_workload = status(&BEFORE, &workload(vec![failed(F::Retryable)]), None, Some(&fault(F::Terminal)));
    assert_eq!(of_workload.recovery, R::Terminal);
    let waits = [step("p", StepState::Backoff, FailureScope::Member)];
    let while_it = |state| of(OperationKind::AddMember, state, &waits, vec![failed(F::Manual)]).recovery;
    assert_eq!(while_it(OperationState::Running), R::Retrying);
    assert_eq!(while_it(OperationState::Cancelled), R::ManualIntervention);
    let runs = [step("p", StepState::Running, FailureScope::Member)];
    let busy = of(OperationKind::AddMember, OperationState::Running, &runs, vec![failed(F::Manual)]).recovery;
    assert_eq!(busy, R::ManualIntervention);
}

#[test]
fn repair_is_available_only_where_it_is_accepted() {
    let failed = || member(MemberState::Failed { since: SINCE, fault: fault(FaultClass::Repairable) }, Health::Failed);
    let ended = OperationView { kind: OperationKind::Reconcile, state: OperationState::NeedsAttention, steps: &[] };
    for lifecycle in Lifecycle::ALL {
        let before = Status { lifecycle: *lifecycle, ..BEFORE };
        let is_open = matches!(lifecycle, Lifecycle::Requested | Lifecycle::Deploying);
        let offered = status(&before, &workload(vec![failed()]), Some(&ended), None).recovery;
        let is_offered = offered == Recovery::RepairAvailable;
        let is_accepted = crate::lifecycle::allows(OperationKind::Repair, *lifecycle);
        assert!(is_offered == is_accepted || is_open, "{lifecycle}: {offered}");
    }
}

#[test]
fn recovery_of_each_class_is_that_of_its_situation() {
    for class in FaultClass::ALL {
        let failed = member(MemberState::Failed { since: SINCE, fault: fault(*class) }, Health::Failed);
        let recovery = of(OperationKind::AddMember, OperationState::NeedsAttention, &[], vec![failed]).recovery;
        assert_eq!(crate::recovery::situation(recovery).class, Some(*class));
    }
}

#[test]
fn fault_of_a_workload_follows_failed_steps_and_the_end_of_the_operation() {
    let (earlier, later) = (fault(FaultClass::Manual), fault(FaultClass::Terminal));
    let operation_step = [step("p", StepState::Failed, FailureScope::Operation)];
    let member_step = [step("p", StepState::Failed, FailureScope::Member)];
    let left = workload(vec![member(MemberState::Pending, Health::Progressing)]);
    let after = |kind, steps: &[StepProgress], change| {
        let operation = OperationView { kind, state: OperationState::Running, steps };
        super::fault(Some(earlier.clone()), change, &left, &operation)
    };
    let failed = |scope| FaultChange::StepFailed { scope, fault: later.clone() };
    let deploy = OperationKind::Deploy;
    assert_eq!(after(deploy, &operation_step, failed(FailureScope::Operation)), Some(later.clone()));
    assert_eq!(after(deploy, &operation_step, failed(FailureScope::Member)), Some(earlier.clone()), "only a member");
    let survived = FailureScope::Component { component: "server".to_owned(), may_fail: 1 };
    assert_eq!(after(deploy, &member_step, failed(survived)), Some(earlier.clone()), "the operation continues");
    assert_eq!(after(deploy, &[], FaultChange::Ended(Ending::NeedsAttention)), Some(earlier.clone()));
    assert_eq!(after(deploy, &[], FaultChange::Ended(Ending::Succeeded)), None);
    let cancelled = |kind| after(kind, &[], FaultChange::Ended(Ending::Cancelled)).expect("a fault").summary;
    assert_eq!(
        cancelled(deploy),
        "the deployment was cancelled; it may have left files and services of server-1 on gpu-1"
    );
    assert!(cancelled(OperationKind::Decommission).starts_with("the removal was cancelled"));
    assert_eq!(cancelled(OperationKind::AddMember), earlier.summary, "it keeps the workload's fault");
}

#[test]
fn member_that_a_cancelled_operation_left_unfinished_has_a_fault() {
    let of = |state, kind| {
        let member = member(state, Health::Progressing);
        let own = [member.id];
        let ended = EndedOperation { kind, ending: Ending::Cancelled, targets: &own, planned: &own, cause: None };
        unfinished_member(&member, &ended, &workload(vec![member.clone()]))
    };
    use {MemberState as S, OperationKind as K};
    let unfinished = of(S::Preparing { since: SINCE }, K::Deploy).expect("a fault");
    assert_eq!(
        Some(unfinished),
        cancelled(K::Deploy, &workload(vec![member(S::Pending, Health::Progressing)])),
        "that of the workload"
    );
    let added = of(S::Pending, K::AddMember).expect("a fault");
    assert_eq!(added.summary, "server-1: operation add_member was cancelled");
    assert_eq!(added.next.command.as_deref(), Some("gpuaas workload resume train"), "no advice to remove the workload");
    assert_eq!(of(S::Ready { since: SINCE }, K::Deploy), None);
    assert_eq!(of(S::Removed, K::Decommission), None);
}

#[test]
fn member_that_failed_earlier_no_longer_advises_to_resume_another_operation() {
    let after = |next: NextAction, ending, is_planned: bool| {
        let earlier = Fault { next, ..fault(FaultClass::Manual) };
        let member = member(MemberState::Failed { since: SINCE, fault: earlier }, Health::Failed);
        let planned = if is_planned { vec![member.id] } else { Vec::new() };
        let kind = OperationKind::Start;
        let ended = EndedOperation { kind, ending, targets: &[member.id], planned: &planned, cause: None };
        let changed = unfinished_member(&member, &ended, &workload(vec![member.clone()]))?;
        Some((changed.summary, changed.next.command.unwrap_or_default()))
    };
    let resume = || NextAction::then_resume("free space", "train");
    let repair = "gpuaas workload repair train --scope member --member server-1".to_owned();
    for ending in [Ending::Succeeded, Ending::NeedsAttention, Ending::Cancelled] {
        assert_eq!(after(resume(), ending, false), Some(("it broke".to_owned(), repair.clone())));
        let is_done = ending == Ending::Succeeded;
        assert_eq!(after(resume(), ending, true).is_some(), is_done, "only what has not succeeded can be resumed");
        assert_eq!(after(NextAction::text("replace the disk"), ending, false), None);
    }
}

#[test]
fn stopped_member_of_a_stopped_workload_is_not_left_out() {
    let member = member(MemberState::Stopped { since: SINCE }, Health::Progressing);
    let ended = EndedOperation {
        kind: OperationKind::RemoveMember,
        ending: Ending::Succeeded,
        targets: &[],
        planned: &[],
        cause: None,
    };
    let after = |lifecycle| {
        let workload = WorkloadView { lifecycle, ..workload(vec![member.clone()]) };
        unfinished_member(&member, &ended, &workload).map(|fault| fault.code)
    };
    assert_eq!(after(Lifecycle::Stopped), None, "a start brings it back");
    assert_eq!(after(Lifecycle::Running).as_deref(), Some("member_left_out"));
}

#[test]
fn member_that_a_repair_left_out_is_failed_and_names_its_own_repair() {
    use {Ending as E, MemberState as S, OperationKind as K};
    let after = |state, (kind, ending), is_target: bool| {
        let member = member(state, Health::Progressing);
        let (targets, cause) = (if is_target { vec![member.id] } else { Vec::new() }, fault(FaultClass::Manual));
        let ended = EndedOperation { kind, ending, targets: &targets, planned: &targets, cause: Some(&cause) };
        let fault = unfinished_member(&member, &ended, &workload(vec![member.clone()]))?;
        Some((fault.code, fault.next.command.unwrap_or_default()))
    };
    let repair = "gpuaas workload repair train --scope member --member server-1".to_owned();
    let left_out = Some(("member_left_out".to_owned(), repair));
    assert_eq!(after(S::Pending, (K::Repair, E::Succeeded), false), left_out);
    assert_eq!(after(S::Joining { since: SINCE }, (K::Repair, E::NeedsAttention), false), left_out);
    assert_eq!(after(S::Stopped { since: SINCE }, (K::Repair, E::Succeeded), false), left_out, "the workload runs now");
    assert_eq!(
        after(S::Stopped { since: SINCE }, (K::Repair, E::NeedsAttention), false),
        None,
        "a start brings it back"
    );
    assert_eq!(after(S::Stopped { since: SINCE }, (K::UncordonMember, E::Succeeded), false), left_out);
    assert_eq!(after(S::Stopped { since: SINCE }, (K::UncordonMember, E::Cancelled), false), left_out);
    assert_eq!(after(S::Stopped { since: SINCE }, (K::Start, E::Cancelled), false), None, "the start can be resumed");
    assert_eq!(after(S::Ready { since: SINCE }, (K::Repair, E::Succeeded), false), None);
    assert_eq!(after(S::Pending, (K::Deploy, E::Succeeded), true), None);
    let of_target = after(S::Pending, (K::Repair, E::NeedsAttention), true).expect("a fault");
    assert_eq!(of_target, ("it_broke".to_owned(), "gpuaas workload resume train".to_owned()));
}
