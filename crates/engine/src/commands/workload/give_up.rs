//! The members that a decommission gives up: it removes them without proof that nothing of them is left.

use gpuaas_model::{Code, Line, MemberId, OperationKind, OperationState, StepState};
use gpuaas_planner::OperationRequest;
use gpuaas_store::{MemberRecord, NodeRecord, StepRecord, Tx};

use crate::{
    error::{CommandError, check_line},
    rows::{WorkloadRows, unreachable_since},
};

/// What a person gives up with a decommission. Needs a reason, which the operation and the audit keep.
#[derive(Clone, Debug, Default)]
pub struct GiveUp {
    /// Unreachable nodes to give up, by name; the name of a member on such a node is accepted, too.
    pub nodes: Vec<String>,
    /// Give up whatever the last decommission tried to remove and could not prove to be removed.
    pub unproven: bool,
    /// Why, in one line.
    pub reason: Option<String>,
}

impl GiveUp {
    /// Returns true if anything is given up.
    pub(super) fn is_requested(&self) -> bool {
        self.unproven || !self.nodes.is_empty()
    }
}

/// Returns the decommission that a person requests. Refuses to give up a member whose removal can still be proven: its node is
/// connected, and no decommission has tried to remove it.
pub(super) async fn decommission(
    tx: &mut Tx,
    rows: &WorkloadRows,
    targets: &[MemberId],
    ask: &GiveUp,
) -> Result<OperationRequest, CommandError> {
    let reason = match (ask.is_requested(), &ask.reason) {
        (false, None) => return Ok(OperationRequest::of(OperationKind::Decommission)),
        (false, Some(_)) => {
            return Err(invalid(
                "a reason was given, but no node is given up",
                "leave it out, or name the node: --give-up NODE",
            ));
        }
        (true, None) => return Err(invalid("giving up a node needs a reason", "give one: --reason TEXT")),
        (true, Some(reason)) => reason,
    };
    check_line(Line::REASON, reason, "reason")?;
    let mut given_up = Vec::new();
    for key in &ask.nodes {
        given_up.push(unreachable_member(rows, targets, key)?.id);
    }
    if ask.unproven {
        let unproven = unproven(tx, rows, targets).await?;
        if unproven.is_empty() {
            let name = &rows.workload.name;
            let detail = format!("the last decommission of {name} left no removal unproven");
            let next = format!("decommission it without force: gpuaas workload decommission {name}");
            return Err(CommandError::new(Code::StateConflict, detail).about("force").then(next));
        }
        given_up.extend(unproven);
    }
    let members = rows.members.iter().filter(|member| given_up.contains(&member.id));
    Ok(OperationRequest::giving_up(&members.map(MemberRecord::name).collect::<Vec<_>>(), reason))
}

fn invalid(detail: &str, next: &str) -> CommandError {
    CommandError::new(Code::FieldInvalid, detail).about("reason").then(next)
}

fn node_of<'r>(rows: &'r WorkloadRows, member: &MemberRecord) -> Option<&'r NodeRecord> {
    member.place.node().and_then(|node| rows.nodes.get(&node))
}

/// Finds the member on the node of that name, otherwise the member of that name. Refuses one whose node may still answer.
fn unreachable_member<'r>(
    rows: &'r WorkloadRows,
    targets: &[MemberId],
    key: &str,
) -> Result<&'r MemberRecord, CommandError> {
    let present: Vec<&'r MemberRecord> = rows.members.iter().filter(|member| targets.contains(&member.id)).collect();
    let on_node =
        present.iter().copied().find(|member| node_of(rows, member).is_some_and(|node| node.name.as_str() == key));
    let found = on_node.or_else(|| present.iter().copied().find(|member| member.name() == key));
    let name = &rows.workload.name;
    let member = found.ok_or_else(|| {
        let nodes: Vec<&str> = present.iter().filter_map(|member| Some(node_of(rows, member)?.name.as_str())).collect();
        CommandError::new(Code::MemberUnknown, format!("{name} has no member on a node {key:?}"))
            .about("give_up")
            .then(format!("name one of {}", nodes.join(", ")))
    })?;
    match node_of(rows, member) {
        Some(node) if unreachable_since(node).is_none() => {
            let detail =
                format!("{} is {}, so the removal of {} can be proven", node.name, node.connectivity, member.name());
            let next = format!(
                "decommission without giving it up: gpuaas workload decommission {name}; if its removal then fails, give it up with --force \
                 --reason TEXT"
            );
            Err(CommandError::new(Code::StateConflict, detail).about("give_up").then(next))
        }
        Some(_) | None => Ok(member),
    }
}

/// Returns the members whose removal the newest operation, a decommission, tried without success: a step failed, or was cancelled while its
/// node was unreachable.
async fn unproven(tx: &mut Tx, rows: &WorkloadRows, targets: &[MemberId]) -> Result<Vec<MemberId>, CommandError> {
    let newest = tx.newest_operation(rows.workload.id).await?;
    let is_tried = |state: OperationState| state.is_final() && state != OperationState::Succeeded;
    let Some(newest) = newest.filter(|of| of.kind == OperationKind::Decommission && is_tried(of.state)) else {
        return Ok(Vec::new());
    };
    let steps = tx.steps_of(newest.id).await?;
    let is_unproven = |member: &&MemberRecord| {
        let is_unreachable = node_of(rows, member).is_some_and(|node| unreachable_since(node).is_some());
        let is_end = |step: &StepRecord| match step.state {
            StepState::Failed => true,
            StepState::Cancelled => is_unreachable,
            StepState::Pending
            | StepState::Running
            | StepState::Backoff
            | StepState::Succeeded
            | StepState::Skipped => false,
        };
        targets.contains(&member.id) && steps.iter().any(|step| step.spec.member == Some(member.id) && is_end(step))
    };
    Ok(rows.members.iter().filter(is_unproven).map(|member| member.id).collect())
}
