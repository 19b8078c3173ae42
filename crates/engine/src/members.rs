//! Changes of members: their state with the health that follows from it, and whether a task may have changed their node.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{Fault, Health, MemberEvent, MemberId, MemberState, Timestamp};
use gpuaas_planner::{
    Ending, StepAction, StepSpec,
    judgments::Source,
    report::Judgment,
    status::{EndedOperation, unfinished_member},
};
use gpuaas_store::{MemberRecord, OperationRecord, Tx};

use crate::{error::EngineError, record::EventScope, rows::OperationRows};

/// Applies an event to a member and records it. An illegal transition is an error and leaves the member unchanged; the caller then fails
/// the step.
pub(crate) async fn change_member(
    tx: &mut Tx,
    rows: &mut OperationRows,
    id: MemberId,
    event: MemberEvent,
    now: Timestamp,
) -> Result<(), EngineError> {
    let (operation, events) = (rows.operation.id, EventScope::of(&rows.operation));
    let Some(member) = rows.of.members.iter_mut().find(|member| member.id == id) else { return Ok(()) };
    let state = member.state.on(event, now).inspect_err(|illegal| {
        tracing::warn!(member = %id, %illegal, "a plan requested an illegal transition");
    })?;
    let before = member.state.name();
    member.state = state;
    member.last_operation = Some(operation);
    set_health_from_state(member);
    *member = tx.update_member(member, before).await?;
    if member.state != MemberState::Removed || !bugs::on(Bug::MemberEventMissing) {
        events.member(tx, member).await?;
    }
    if member.state == MemberState::Removed {
        rows.of.workload.forget_machine_of(member);
    }
    Ok(())
}

/// Fails the members that the ended operation left unfinished and that no other operation will change.
pub(crate) async fn fail_unfinished(
    tx: &mut Tx,
    rows: &mut OperationRows,
    ending: Ending,
    now: Timestamp,
) -> Result<(), EngineError> {
    let (view, OperationRecord { kind, targets, fault, cancel_requested, .. }) =
        (rows.of.view(), rows.operation.clone());
    let cause = fault.as_ref().filter(|_| !cancel_requested);
    let planned: Vec<MemberId> = rows.steps.iter().filter_map(|step| step.spec.member).collect();
    let ended = EndedOperation { kind, ending, targets: &targets, planned: &planned, cause };
    for member in &view.members {
        if let Some(fault) = unfinished_member(member, &ended, &view) {
            change_member(tx, rows, member.id, MemberEvent::Fail { fault }, now).await?;
        }
    }
    Ok(())
}

/// Marks a member that keeps its state as degraded: a step found a fault that a repair removes.
pub(crate) async fn degrade_member(
    tx: &mut Tx,
    rows: &mut OperationRows,
    id: MemberId,
    fault: &Fault,
) -> Result<(), EngineError> {
    let events = EventScope::of(&rows.operation);
    let Some(member) = rows.of.members.iter_mut().find(|member| member.id == id) else { return Ok(()) };
    member.set_judgment(Source::Unit, Judgment { health: Health::Degraded, fault: Some(fault.clone()) });
    *member = tx.update_member(member, member.state.name()).await?;
    Ok(events.member(tx, member).await?)
}

/// Sets a member's health from its state alone; later reports of its unit, its cluster or the workload's controller may change it.
fn set_health_from_state(member: &mut MemberRecord) {
    use MemberState as S;
    member.forget_report();
    member.forget_judgments();
    member.health = match member.state {
        S::Pending | S::Preparing { .. } | S::Bootstrapping { .. } | S::Joining { .. } => Health::Progressing,
        S::Ready { .. } | S::Stopped { .. } | S::Drained { .. } => Health::Healthy,
        S::Removed => Health::None,
        S::Draining { .. } | S::Removing { .. } => Health::Progressing,
        S::Failed { .. } => Health::Failed,
    };
    if member.health != Health::Failed {
        member.fault = None;
    }
}

/// Marks a member as touched before the first task that may leave something on its node: anything found there from now on belongs to the
/// member.
pub(crate) async fn mark_touched(tx: &mut Tx, rows: &mut OperationRows, spec: &StepSpec) -> Result<(), EngineError> {
    let changes = matches!(&spec.action, StepAction::NodeTask { task, .. } if task.touches_app());
    let member = rows.of.members.iter_mut().find(|member| Some(member.id) == spec.member);
    if let Some(member) = member.filter(|member| changes && !member.touched) {
        member.touched = true;
        *member = tx.update_member(member, member.state.name()).await?;
    }
    Ok(())
}
