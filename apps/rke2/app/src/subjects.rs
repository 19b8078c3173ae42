//! The members that an operation on a deployed cluster is about, and the reasons against it.

use gpuaas_model::{Code, MemberState, OperationKind};
use gpuaas_planner::{AddedMembers, MemberView, PlanRefusal, Subjects, WorkloadView};
use serde_json::json;

use crate::{
    names,
    operation::{DRAIN_SECONDS_DEFAULT, DrainMember, Operation, RemoveMember, Repair, RepairScope, ReplaceMember},
};

const MEMBER_FIELD: &str = "parameters.member";
const BY_FIELD: &str = "parameters.by";
const REASON_FIELD: &str = "parameters.reason";

/// Returns the members that an operation is about.
pub(crate) fn subjects(operation: &Operation, workload: &WorkloadView) -> Result<Subjects, PlanRefusal> {
    let existing = match operation {
        Operation::DrainMember(of) => vec![drainable(of, workload)?],
        Operation::UncordonMember(of) => vec![uncordonable(&of.member, workload)?],
        Operation::RemoveMember(of) => vec![removable(of, workload)?],
        Operation::ReplaceMember(of) => return replaced(of, workload),
        Operation::Repair(of) => repaired(of, workload)?,
        Operation::Deploy(_)
        | Operation::AddMember(_)
        | Operation::Stop(_)
        | Operation::Start(_)
        | Operation::Reconcile(_)
        | Operation::Decommission(_)
        | Operation::Upgrade(_)
        | Operation::Restore(_) => present(workload).collect(),
    };
    Ok(Subjects { existing: existing.into_iter().map(|member| member.id).collect(), added: None })
}

/// Returns the operations that can be requested for a member: by the rules that decide about the request itself.
pub(crate) fn member_operations(member: &MemberView, workload: &WorkloadView) -> Vec<OperationKind> {
    let name = member.name.clone();
    // With `force`: without it only the last agent is refused, and the refusal names the flag.
    let drain = DrainMember {
        member: name.clone(),
        force: true,
        delete_empty_dir_data: false,
        timeout_seconds: DRAIN_SECONDS_DEFAULT,
    };
    let removal = RemoveMember {
        member: name.clone(),
        force: true,
        delete_empty_dir_data: false,
        timeout_seconds: DRAIN_SECONDS_DEFAULT,
        give_up: false,
        reason: None,
    };
    let repair = Repair { scope: RepairScope::Member, member: Some(name) };
    let offered = [
        (OperationKind::DrainMember, drainable(&drain, workload).is_ok()),
        (OperationKind::UncordonMember, uncordonable(&member.name, workload).is_ok()),
        (OperationKind::RemoveMember, removable(&removal, workload).is_ok()),
        (OperationKind::ReplaceMember, agent(&member.name, "replaced", workload).is_ok()),
        (OperationKind::Repair, repaired(&repair, workload).is_ok()),
    ];
    offered.into_iter().filter(|(_, is_offered)| *is_offered).map(|(kind, _)| kind).collect()
}

/// Returns the member of that name that is not removed.
pub(crate) fn named_member<'w>(workload: &'w WorkloadView, name: &str) -> Result<&'w MemberView, PlanRefusal> {
    present(workload).find(|member| member.name == name).ok_or_else(|| {
        let names: Vec<&str> = present(workload).map(|member| member.name.as_str()).collect();
        let detail = format!("{} has no member {name:?}", workload.name);
        PlanRefusal::refused(MEMBER_FIELD, Code::MemberUnknown, detail, format!("name one of {}", names.join(", ")))
    })
}

fn present(workload: &WorkloadView) -> impl Iterator<Item = &MemberView> {
    workload.members.iter().filter(|member| member.state != MemberState::Removed)
}

/// Returns the agent of that name; refuses a server because of what `action` would do to it.
fn agent<'w>(name: &str, action: &str, workload: &'w WorkloadView) -> Result<&'w MemberView, PlanRefusal> {
    let member = named_member(workload, name)?;
    if member.component_key != names::SERVER {
        return Ok(member);
    }
    let detail = format!("{name} is the only server of {}; it cannot be {action}", workload.name);
    let next = format!("remove the whole workload: gpuaas workload decommission {}", workload.name);
    Err(PlanRefusal::refused(MEMBER_FIELD, Code::LastServer, detail, next))
}

/// Refuses the last agent that takes work, unless `force` is set.
fn check_last_agent(member: &MemberView, force: bool, workload: &WorkloadView) -> Result<(), PlanRefusal> {
    let takes_work =
        |member: &&MemberView| matches!(member.state, MemberState::Ready { .. }) && !member.is_observed_unwell();
    let is_other = |other: &&MemberView| other.id != member.id;
    let others = workload.component(names::AGENT).filter(takes_work).filter(is_other).count();
    if force || others > 0 || !takes_work(&member) {
        return Ok(());
    }
    let detail =
        format!("{} is the last ready agent of {}: its pods have no agent to move to", member.name, workload.name);
    let next = "add an agent first, or repeat the request with force (--force)";
    Err(PlanRefusal::refused(MEMBER_FIELD, Code::LastAgent, detail, next))
}

fn drainable<'w>(of: &DrainMember, workload: &'w WorkloadView) -> Result<&'w MemberView, PlanRefusal> {
    let member = agent(&of.member, "drained", workload)?;
    if matches!(member.state, MemberState::Drained { .. }) {
        let detail = format!("{} is drained already; nothing was changed", member.name);
        let next =
            format!("let it accept work again: gpuaas workload uncordon-member {} {}", workload.name, member.name);
        return Err(PlanRefusal::refused(MEMBER_FIELD, Code::NothingToDo, detail, next));
    }
    if !member.state.is_in_service() {
        return Err(not_in_service(member, workload));
    }
    check_last_agent(member, of.force, workload)?;
    Ok(member)
}

fn uncordonable<'w>(name: &str, workload: &'w WorkloadView) -> Result<&'w MemberView, PlanRefusal> {
    let member = named_member(workload, name)?;
    // A ready member is allowed: a person may have cordoned its KubeNode.
    if member.state.is_in_service() { Ok(member) } else { Err(not_in_service(member, workload)) }
}

fn not_in_service(member: &MemberView, workload: &WorkloadView) -> PlanRefusal {
    let detail = format!("{} is {}; this needs a member in service", member.name, member.state.name());
    let repair = format!("gpuaas workload repair {} --scope member --member {}", workload.name, member.name);
    let remove = format!("gpuaas workload remove-member {} {}", workload.name, member.name);
    PlanRefusal::refused(
        MEMBER_FIELD,
        Code::StateConflict,
        detail,
        format!("repair it: {repair}; or remove it: {remove}"),
    )
}

fn removable<'w>(of: &RemoveMember, workload: &'w WorkloadView) -> Result<&'w MemberView, PlanRefusal> {
    let member = agent(&of.member, "removed", workload)?;
    match (of.give_up, &of.reason) {
        (true, Some(_)) => check_lost(member, workload)?,
        (true, None) => {
            let detail = "giving up a member needs a reason";
            return Err(PlanRefusal::refused(REASON_FIELD, Code::FieldInvalid, detail, "give one: --reason TEXT"));
        }
        (false, Some(_)) => {
            let detail = "a reason was given, but no member is given up";
            return Err(PlanRefusal::refused(
                REASON_FIELD,
                Code::FieldInvalid,
                detail,
                "leave it out, or add --give-up",
            ));
        }
        (false, None) => {}
    }
    check_last_agent(member, of.force, workload)?;
    Ok(member)
}

/// Refuses to give up a member whose removal can still be proven: its node may answer, and nothing has failed on it.
fn check_lost(member: &MemberView, workload: &WorkloadView) -> Result<(), PlanRefusal> {
    let has_failed = matches!(member.state, MemberState::Failed { .. });
    if member.machine.unreachable_since.is_some() || has_failed {
        return Ok(());
    }
    let detail = format!("{} is not unreachable, so the removal of {} can be proven", member.machine.name, member.name);
    let next = format!("remove it: gpuaas workload remove-member {} {}", workload.name, member.name);
    Err(PlanRefusal::refused("parameters.give_up", Code::StateConflict, detail, next))
}

/// A replacement may be of the last agent: the new one takes over first.
fn replaced(of: &ReplaceMember, workload: &WorkloadView) -> Result<Subjects, PlanRefusal> {
    let member = agent(&of.member, "replaced", workload)?;
    if member.place.allocation() == Some(of.by) {
        let detail = format!("{} runs on that node already; a member cannot replace itself", member.name);
        let next = "name the allocation of another node; see gpuaas allocation list";
        return Err(PlanRefusal::refused(BY_FIELD, Code::AllocationInUse, detail, next));
    }
    let intent = json!({ "agent_allocation_ids": [of.by] });
    let added = Some(AddedMembers { intent, field: BY_FIELD.to_owned() });
    Ok(Subjects { existing: vec![member.id], added })
}

fn repaired<'w>(of: &Repair, workload: &'w WorkloadView) -> Result<Vec<&'w MemberView>, PlanRefusal> {
    let members: Vec<&MemberView> = match (of.scope, &of.member) {
        (RepairScope::Member, Some(name)) => {
            let member = named_member(workload, name)?;
            check_server(member, workload)?;
            vec![member]
        }
        (RepairScope::Member, None) => {
            let next = "name it: --member MEMBER";
            return Err(PlanRefusal::refused(MEMBER_FIELD, Code::FieldInvalid, "the member is missing", next));
        }
        (RepairScope::ControlPlane | RepairScope::WholeRuntime, Some(_)) => {
            let next = "leave it out, or use the scope member";
            let detail = "only a repair with scope member takes a member";
            return Err(PlanRefusal::refused(MEMBER_FIELD, Code::FieldInvalid, detail, next));
        }
        (RepairScope::ControlPlane, None) => {
            present(workload).filter(|member| member.component_key == names::SERVER).collect()
        }
        (RepairScope::WholeRuntime, None) => present(workload).collect(),
    };
    if let Some(member) = members.iter().find(|member| matches!(member.state, MemberState::Removing { .. })) {
        let detail = format!("{} is being removed", member.name);
        let next = format!("finish its removal: gpuaas workload resume {}", workload.name);
        return Err(PlanRefusal::refused(MEMBER_FIELD, Code::StateConflict, detail, next));
    }
    check_reachable(&members, of.scope)?;
    if members.iter().any(|member| needs_repair(member)) {
        return Ok(members);
    }
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let detail = format!("nothing to repair: {} in service and healthy", is_or_are(&names));
    let next = format!("see what deviates: gpuaas workload diff {}", workload.name);
    Err(PlanRefusal::refused("parameters.scope", Code::NothingToDo, detail, next))
}

/// Refuses a repair that could not begin, because the node of its member or of the server is unreachable. Agents of a wider scope wait for
/// their nodes.
fn check_reachable(members: &[&MemberView], scope: RepairScope) -> Result<(), PlanRefusal> {
    let is_needed = |member: &MemberView| scope == RepairScope::Member || member.component_key == names::SERVER;
    let Some(lost) = members.iter().find(|member| member.has_unreachable_node() && is_needed(member)) else {
        return Ok(());
    };
    let node = &lost.machine.name;
    let detail = format!("{} cannot be repaired: its node {node} is unreachable", lost.name);
    let next = format!("check whether the node and its agent run: gpuaas node show {node}");
    Err(PlanRefusal::refused(MEMBER_FIELD, Code::AllocationUnreachable, detail, next))
}

fn is_or_are(names: &[&str]) -> String {
    match names {
        [one] => format!("{one} is"),
        several => format!("{} are", several.join(", ")),
    }
}

/// Refuses the repair of an agent whose server does not serve: it could not join.
fn check_server(member: &MemberView, workload: &WorkloadView) -> Result<(), PlanRefusal> {
    let serves = |server: &MemberView| server.state.is_in_service() && !server.is_observed_unwell();
    let broken = |server: &&MemberView| server.id != member.id && !serves(server);
    let Some(server) = workload.component(names::SERVER).find(broken) else { return Ok(()) };
    let detail = format!("{} cannot join: {} does not serve", member.name, server.name);
    let next =
        format!("repair the control plane first: gpuaas workload repair {} --scope control-plane", workload.name);
    Err(PlanRefusal::refused(MEMBER_FIELD, Code::StateConflict, detail, next))
}

/// A member that is in service and healthy needs no repair.
fn needs_repair(member: &MemberView) -> bool {
    !member.state.is_in_service() || member.is_unwell()
}
