//! Converts rows to those that [`gpuaas_planner::waiting`] explains, so that responses, events and tests have the same explanations.

use gpuaas_model::{Connectivity, Health, Lifecycle, MemberId, OperationState, Timestamp, Waiting};
use gpuaas_planner::waiting::{
    self, AgentProblem, AllocationRow, IssuedEnrollment, MemberRow, NodeLink, NodeRow, Open, OperationRow, Rows,
    StepRow, TaskRow, WorkloadRow,
};
use gpuaas_store::{
    AllocationRecord, EnrollmentRecord, MemberRecord, NodeRecord, OperationRecord, StepRecord, TaskRecord,
    WorkloadRecord,
};
use serde_json::{Value, json};

/// Returns what explains a step of an operation that was accepted at `accepted_at`.
pub fn step_row(step: &StepRecord, accepted_at: Timestamp) -> StepRow<'_> {
    StepRow {
        operation: step.operation,
        accepted_at,
        spec: &step.spec,
        state: step.state,
        attempts: step.attempts,
        not_before: step.not_before,
        detail: step.detail.as_deref(),
        fault: step.fault.as_ref(),
        started_at: step.started_at,
        deadline_at: step.deadline_at,
        ended_at: step.ended_at,
    }
}

/// Returns what explains an operation. `workload` is the workload's name or id, `current` the first step in progress.
pub fn operation_row<'a>(
    operation: &'a OperationRecord,
    workload: &'a str,
    current: Option<&'a StepRecord>,
) -> OperationRow<'a> {
    OperationRow {
        id: operation.id,
        workload,
        state: operation.state,
        cancel_requested: operation.is_ending(),
        fault: operation.fault.as_ref(),
        created_at: operation.created_at,
        started_at: operation.started_at,
        ended_at: operation.ended_at,
        current: current.map(|step| step_row(step, operation.created_at)),
    }
}

/// Returns what explains a workload. `members` are those that are not removed; `open` is its open operation, with the first step in
/// progress.
pub fn workload_row<'a>(
    workload: &'a WorkloadRecord,
    members: &'a [MemberRecord],
    open: Option<(&'a OperationRecord, Option<&'a StepRecord>)>,
) -> WorkloadRow<'a> {
    let is_unwell = matches!(workload.health, Health::Degraded | Health::Failed);
    let of_member = members.iter().find_map(member_fault).filter(|_| is_unwell);
    WorkloadRow {
        name: workload.name.as_str(),
        lifecycle: workload.lifecycle,
        health: workload.health,
        recovery: workload.recovery,
        fault: workload.fault.as_ref().or(of_member),
        updated_at: workload.updated_at,
        open: open.map(|(operation, step)| Open {
            state: operation.state,
            since: operation.created_at,
            current: step.map(|step| step_row(step, operation.created_at)),
        }),
    }
}

fn member_fault(member: &MemberRecord) -> Option<&gpuaas_model::Fault> {
    member.state.fault().or(member.fault.as_ref())
}

/// Returns what explains a member. `name` is its name, `workload` the workload's name or id, `open` the workload's open operation, and
/// `current` the first step for the member that is in progress.
pub fn member_row<'a>(
    member: &'a MemberRecord,
    (name, workload): (&'a str, &'a str),
    open: Option<&'a OperationRecord>,
    current: Option<&'a StepRecord>,
) -> MemberRow<'a> {
    let progressing = member.reported.as_ref().filter(|counted| counted.report.health == Health::Progressing);
    MemberRow {
        name,
        workload,
        state: &member.state,
        health: member.health,
        fault: member.fault.as_ref(),
        reported_by: progressing.map(|counted| counted.report.by.as_str()),
        created_at: member.created_at,
        updated_at: member.updated_at,
        is_busy: open.is_some(),
        current: open.zip(current).map(|(operation, step)| step_row(step, operation.created_at)),
    }
}

/// Returns the first step in progress, of all or of one member.
pub fn current_step(steps: &[StepRecord], member: Option<MemberId>) -> Option<&StepRecord> {
    use gpuaas_model::StepState::{Backoff, Running};
    let is_wanted = |step: &&StepRecord| member.is_none_or(|member| step.spec.member == Some(member));
    steps.iter().filter(is_wanted).find(|step| matches!(step.state, Running | Backoff))
}

/// Returns a node's connection.
pub fn node_link(node: &NodeRecord) -> NodeLink<'_> {
    NodeLink { name: node.name.as_str(), connectivity: node.connectivity, since: node.connectivity_since }
}

/// Returns what explains a node. `enrollment` is a string that can be redeemed now.
pub fn node_row<'a>(node: &'a NodeRecord, enrollment: Option<&EnrollmentRecord>) -> NodeRow<'a> {
    let problem = node.agent_problem.as_ref();
    NodeRow {
        link: node_link(node),
        state: node.state,
        problem: problem.map(|problem| AgentProblem { detail: &problem.detail, since: problem.since }),
        enrollment: enrollment.map(|of| IssuedEnrollment { issued_at: of.created_at, expires_at: of.expires_at }),
        left_at: node.left_by_tenant.as_ref().map(|left| left.at),
        created_at: node.created_at,
    }
}

/// Returns what explains an allocation of a node.
pub fn allocation_row<'a>(allocation: &'a AllocationRecord, node: &'a NodeRecord) -> AllocationRow<'a> {
    AllocationRow {
        id: allocation.id,
        link: node_link(node),
        state: allocation.state,
        detail: allocation.detail.as_deref(),
        created_at: allocation.created_at,
    }
}

/// Returns what explains a task on a node; `step` is the one that it executes.
pub fn task_row<'a>(task: &'a TaskRecord, link: NodeLink<'a>, step: Option<&'a StepRecord>) -> TaskRow<'a> {
    TaskRow {
        id: task.id,
        link,
        task_type: task.task_type,
        state: task.state,
        operation: task.operation,
        progress: step.filter(|step| step.task == Some(task.id)).and_then(|step| step.detail.as_deref()),
        created_at: task.created_at,
        expires_at: task.expires_at,
    }
}

/// Returns what waits in a workload's rows at `now` without being explained, each as a sentence; empty if everything is explained.
///
/// `members` are all of the workload, `operation` is its newest one and `steps` are those of that operation; all from one read.
pub fn unexplained(
    workload: &WorkloadRecord,
    members: &[MemberRecord],
    operation: Option<&OperationRecord>,
    steps: &[StepRecord],
    now: Timestamp,
) -> Vec<String> {
    let open = operation.filter(|operation| !operation.state.is_final());
    let name = workload.name.as_str();
    let names: Vec<String> = members.iter().map(MemberRecord::name).collect();
    let present: Vec<MemberRecord> =
        members.iter().filter(|member| member.state != gpuaas_model::MemberState::Removed).cloned().collect();
    let accepted_at = operation.map_or(workload.created_at, |operation| operation.created_at);
    let rows = Rows {
        workload: workload_row(workload, &present, open.map(|open| (open, current_step(steps, None)))),
        members: members
            .iter()
            .zip(&names)
            .map(|(member, of)| member_row(member, (of.as_str(), name), open, current_step(steps, Some(member.id))))
            .collect(),
        operation: operation.map(|operation| operation_row(operation, name, current_step(steps, None))),
        steps: steps.iter().map(|step| step_row(step, accepted_at)).collect(),
    };
    waiting::unexplained(&rows, now)
}

/// Returns an explanation in the form of events; null for what has ended or settled.
pub(crate) fn event_data(waiting: Option<&Waiting>) -> Value {
    waiting.map_or(Value::Null, |waiting| {
        json!({
            "what": waiting.what, "from": waiting.from, "since": waiting.since.to_string(),
            "until": waiting.until.map(|at| at.to_string()), "evidence": waiting.evidence,
            "next": waiting.next.text, "command": waiting.next.command,
        })
    })
}

/// Adds an explanation to the data of an event.
pub(crate) fn with(mut data: Value, waiting: Value) -> Value {
    data["waiting"] = waiting;
    data
}

/// Explains a node in an event.
pub(crate) fn of_node(node: &NodeRecord, enrollment: Option<&EnrollmentRecord>) -> Value {
    event_data(waiting::node(&node_row(node, enrollment)).as_ref())
}

/// Explains an allocation in an event.
pub(crate) fn of_allocation(allocation: &AllocationRecord, node: &NodeRecord) -> Value {
    event_data(waiting::allocation(&allocation_row(allocation, node)).as_ref())
}

/// Explains a task in an event about its dispatch, when its node was connected, or its end.
pub(crate) fn of_task(task: &TaskRecord, node: &str) -> Value {
    let link = NodeLink { name: node, connectivity: Connectivity::Connected, since: task.created_at };
    event_data(waiting::task(&task_row(task, link, None)).as_ref())
}

/// Explains a step in its event.
pub(crate) fn of_step(step: &StepRecord) -> Value {
    let begun = step.started_at.or(step.not_before);
    let explained = begun.and_then(|begun| waiting::current_step(&step_row(step, begun)));
    event_data(explained.as_ref())
}

/// Explains an operation in its event, by its own row: its steps have events of their own.
pub(crate) fn of_operation(operation: &OperationRecord) -> Value {
    let workload = operation.workload.to_string();
    event_data(waiting::operation(&operation_row(operation, &workload, None)).as_ref())
}

/// Explains a member in its event, by its own row. A member changes to these states while an operation is open.
pub(crate) fn of_member(member: &MemberRecord) -> Value {
    use gpuaas_model::MemberState as S;
    let (name, workload) = (member.name(), member.workload.to_string());
    let is_busy = match &member.state {
        S::Pending | S::Preparing { .. } | S::Bootstrapping { .. } | S::Joining { .. } => true,
        S::Draining { .. } | S::Removing { .. } => true,
        S::Ready { .. } | S::Stopped { .. } | S::Drained { .. } | S::Removed | S::Failed { .. } => false,
    };
    let row = MemberRow { is_busy, ..member_row(member, (name.as_str(), workload.as_str()), None, None) };
    event_data(waiting::member(&row).as_ref())
}

/// Explains a workload in its event, by its own row. An operation is open while it is being deployed and while it is `progressing`.
pub(crate) fn of_workload(workload: &WorkloadRecord) -> Value {
    let is_deploying = matches!(workload.lifecycle, Lifecycle::Requested | Lifecycle::Deploying);
    let is_busy = is_deploying || workload.health == Health::Progressing;
    let open = Open { state: OperationState::Running, since: workload.updated_at, current: None };
    let row = WorkloadRow { open: is_busy.then_some(open), ..workload_row(workload, &[], None) };
    event_data(waiting::workload(&row).as_ref())
}
