//! Converts workloads, members, operations and access grants to API types.

use std::collections::BTreeMap;

use gpuaas_api_types::{
    AccessAnswer, AccessGrant, AccessKind, ControllerReport, Difference, Drift, Endpoint, Fault, Member, MemberReport,
    OfferedRole, Operation, RefusedAction, ReportedProgress, Step, Waiting, Workload,
};
use gpuaas_engine::{
    Engine,
    commands::{access, actions},
};
use gpuaas_model::{
    Health, Lifecycle, MemberId, MemberState, Name, OperationKind, ProjectId, Recovery, Timestamp, WorkloadAction,
};
use gpuaas_planner::{
    ControlRefusal,
    report::{self, ReportedStatus},
};
use gpuaas_store::{
    AccessGrantRecord, MemberRecord, OperationRecord, Reader, StepRecord, StoreError, WorkloadParts, WorkloadRecord,
    WorkloadReportRecord,
};

use crate::waiting;

/// Sections of the workload list. The first one contains workloads that are changing or need an operator.
pub(crate) const SECTIONS: [&str; 4] = ["needs_attention", "active", "stopped", "history"];

/// Returns the section of a workload with these states.
pub(crate) fn section(lifecycle: Lifecycle, health: Health, recovery: Option<Recovery>) -> &'static str {
    let needs_operator = match recovery {
        Some(Recovery::Resumable | Recovery::RepairAvailable | Recovery::ManualIntervention | Recovery::Terminal) => {
            true
        }
        Some(Recovery::None | Recovery::Retrying | Recovery::Reconciling) | None => false,
    };
    match (lifecycle, health) {
        (Lifecycle::Decommissioned, _) => "history",
        (Lifecycle::Stopped, _) => "stopped",
        (Lifecycle::Running, Health::Healthy) if !needs_operator => "active",
        (
            Lifecycle::Requested
            | Lifecycle::Deploying
            | Lifecycle::Running
            | Lifecycle::Stopping
            | Lifecycle::Starting
            | Lifecycle::Decommissioning
            | Lifecycle::Failed
            | Lifecycle::Cancelled,
            _,
        ) => "needs_attention",
    }
}

/// Converts workloads, with the members and open operations that lists show.
pub(crate) async fn workloads(
    reader: &mut Reader,
    records: Vec<WorkloadRecord>,
    engine: &Engine,
) -> Result<Vec<Workload>, StoreError> {
    let mut parts = reader.workload_parts(&records).await?;
    let projects = reader.project_names(records.iter().map(|record| record.project)).await?;
    let with_parts = records.into_iter().map(|record| {
        let parts = parts.remove(&record.id).unwrap_or_default();
        let project_name = projects.get(&record.project).ok_or_else(|| no_project(record.project))?;
        Ok(workload_with(record, &parts, project_name, engine))
    });
    with_parts.collect()
}

fn no_project(id: ProjectId) -> StoreError {
    StoreError::NotFound { what: "project", id: id.to_string() }
}

/// Converts one workload in the same way.
pub(crate) async fn workload(
    reader: &mut Reader,
    record: WorkloadRecord,
    engine: &Engine,
) -> Result<Workload, StoreError> {
    let id = record.id;
    let missing = || StoreError::NotFound { what: "workload", id: id.to_string() };
    workloads(reader, vec![record], engine).await?.pop().ok_or_else(missing)
}

fn workload_with(record: WorkloadRecord, parts: &WorkloadParts, project_name: &Name, engine: &Engine) -> Workload {
    let ready = parts.members.iter().filter(|member| is_ready(member)).count();
    let is_unwell = matches!(record.health, Health::Degraded | Health::Failed);
    let of_member = parts.members.iter().find_map(member_fault).filter(|_| is_unwell);
    let explained = record.fault.clone().or(of_member.cloned());
    Workload {
        waiting: waiting::of_workload(&record, parts),
        endpoint: record.endpoint(gpuaas_model::Endpoint::API).map(str::to_owned),
        id: record.id.to_string(),
        name: record.name.to_string(),
        project: record.project.to_string(),
        project_name: project_name.to_string(),
        section: section(record.lifecycle, record.health, Some(record.recovery)).to_owned(),
        waiting_for: waiting::waiting_for(parts, engine.ports().clock.now()),
        usable: record.lifecycle == Lifecycle::Running
            && parts.members.iter().any(|member| is_ready(member) && has_endpoint(&record, member.id)),
        members_ready: u32::try_from(ready).unwrap_or(u32::MAX),
        members_total: u32::try_from(parts.members.len()).unwrap_or(u32::MAX),
        member_states: member_states(&parts.members),
        actions: actions::of_workload(engine, &record, parts.newest_operation.as_ref())
            .into_iter()
            .map(|action| action.as_str().to_owned())
            .collect(),
        drift: drift(&record),
        stand_in: parts.stand_in,
        app: record.app,
        version: record.version,
        lifecycle: record.lifecycle.to_string(),
        phase: record.phase,
        completed: record.progress.completed,
        total: record.progress.total,
        health: record.health.to_string(),
        recovery: record.recovery.to_string(),
        endpoints: record.endpoints.into_iter().map(endpoint).collect(),
        fault: explained.map(fault),
        generation: record.generation,
        observed_generation: record.observed_generation,
        created_at: record.created_at.to_string(),
    }
}

/// Returns the known differences of a running workload; `None` for any other one, which is checked when it runs again.
fn drift(record: &WorkloadRecord) -> Option<Drift> {
    let is_shown = record.lifecycle == Lifecycle::Running && !record.drift.seen.is_empty();
    is_shown.then(|| Drift {
        differences: record.drift.seen.iter().map(|seen| difference(seen.difference.clone())).collect(),
        reconcile_at: record.drift.due_at.map(|at| at.to_string()),
        attempts: record.drift.attempts.iter().map(ToString::to_string).collect(),
    })
}

/// Converts a difference.
pub(crate) fn difference(of: gpuaas_planner::Difference) -> Difference {
    Difference {
        member: of.member,
        field: of.field,
        desired: of.desired,
        observed: of.observed,
        since: of.since.map(|since| since.to_string()),
        next: of.action.text,
        command: of.action.command,
    }
}

fn member_states(members: &[MemberRecord]) -> BTreeMap<String, u32> {
    let mut states = BTreeMap::new();
    for member in members {
        *states.entry(member.state.name().to_string()).or_default() += 1;
    }
    states
}

/// Returns why the newest operation of a workload cannot be resumed, and why it cannot be cancelled, where that is so.
pub(crate) fn refused_actions(record: &WorkloadRecord, newest: Option<&OperationRecord>) -> Vec<RefusedAction> {
    let refused = |(action, refusal): (WorkloadAction, ControlRefusal)| RefusedAction {
        action: action.as_str().to_owned(),
        code: refusal.code.to_string(),
        detail: refusal.detail,
        next: refusal.next,
    };
    actions::refused_control(record, newest).into_iter().map(refused).collect()
}

fn kinds(kinds: Vec<OperationKind>) -> Vec<String> {
    kinds.into_iter().map(|kind| kind.to_string()).collect()
}

fn member_fault(member: &MemberRecord) -> Option<&gpuaas_model::Fault> {
    member.state.fault().or(member.fault.as_ref())
}

fn is_ready(member: &MemberRecord) -> bool {
    matches!(member.state, MemberState::Ready { .. }) && member.health == Health::Healthy
}

fn has_endpoint(record: &WorkloadRecord, member: MemberId) -> bool {
    record.endpoints.iter().any(|endpoint| endpoint.member.is_none_or(|serves| serves == member))
}

fn endpoint(endpoint: gpuaas_model::Endpoint) -> Endpoint {
    Endpoint { purpose: endpoint.purpose, address: endpoint.address }
}

/// Converts a member of `workload`, whose open operation has `steps`.
pub(crate) fn member(
    record: MemberRecord,
    (workload, node_name): (&Name, &Name),
    (open, steps): (Option<&OperationRecord>, &[StepRecord]),
    actions: Vec<OperationKind>,
) -> Member {
    Member {
        waiting: waiting::of_member(&record, workload, open, steps),
        name: record.name(),
        node: record.place.node().map(|id| id.to_string()),
        node_name: node_name.to_string(),
        state: record.state.name().to_string(),
        health: record.health.to_string(),
        fault: member_fault(&record).cloned().map(fault),
        reported: record.reported.map(|counted| member_report(counted.report)),
        actions: kinds(actions),
    }
}

fn member_report(report: report::MemberReport) -> MemberReport {
    MemberReport {
        by: report.by,
        health: report.health.to_string(),
        code: report.code,
        message: report.message,
        evidence: report.evidence,
        since: report.since.to_string(),
    }
}

/// Converts the last report of a workload's controller. `status` is what counts of it, and `generation` the workload's present one.
pub(crate) fn controller_report(
    record: WorkloadReportRecord,
    status: Option<&ReportedStatus>,
    generation: u64,
) -> ControllerReport {
    let progress = status.and_then(|status| status.progress);
    ControllerReport {
        by: record.by,
        generation: record.generation,
        current: record.generation == generation,
        sequence: record.sequence,
        phase: status.and_then(|status| status.phase.clone()),
        progress: progress.map(|of| ReportedProgress { completed: of.completed, total: of.total }),
        since: record.since.to_string(),
        reported_at: record.reported_at.to_string(),
    }
}

/// Converts operations, with the names of their workloads and projects.
pub(crate) async fn operations(
    reader: &mut Reader,
    records: Vec<OperationRecord>,
) -> Result<Vec<Operation>, StoreError> {
    let names = reader.workload_names(records.iter().map(|record| record.workload)).await?;
    let projects = reader.project_names(records.iter().map(|record| record.project)).await?;
    let open: Vec<_> = records.iter().filter(|record| !record.state.is_final()).map(|record| record.id).collect();
    let steps = reader.current_steps(open).await?;
    let with_names = records.into_iter().map(|record| {
        let missing = || StoreError::NotFound { what: "workload", id: record.workload.to_string() };
        let name = names.get(&record.workload).ok_or_else(missing)?;
        let project_name = projects.get(&record.project).ok_or_else(|| no_project(record.project))?;
        let step = steps.get(&record.id);
        Ok(operation_with(record, name, project_name, step))
    });
    with_names.collect()
}

/// Converts one operation in the same way.
pub(crate) async fn operation(reader: &mut Reader, record: OperationRecord) -> Result<Operation, StoreError> {
    let id = record.id;
    let missing = || StoreError::NotFound { what: "operation", id: id.to_string() };
    operations(reader, vec![record]).await?.pop().ok_or_else(missing)
}

fn operation_with(
    record: OperationRecord,
    workload_name: &Name,
    project_name: &Name,
    step: Option<&StepRecord>,
) -> Operation {
    let is_ending = record.is_ending();
    Operation {
        waiting: waiting::of_operation(&record, workload_name, step),
        id: record.id.to_string(),
        workload: record.workload.to_string(),
        workload_name: workload_name.to_string(),
        project_name: project_name.to_string(),
        kind: record.kind.to_string(),
        parameters: record.parameters,
        state: record.state.to_string(),
        requested_by: record.requested_by,
        resumes: record.resumes.map(|id| id.to_string()),
        superseded_by: record.superseded_by.map(|id| id.to_string()),
        correlation_id: record.correlation.to_string(),
        cancel_requested: is_ending,
        reason: record.by_platform.map(|own| own.reason),
        fault: record.fault.map(fault),
        created_at: record.created_at.to_string(),
        ended_at: record.ended_at.map(|at| at.to_string()),
    }
}

/// Converts the steps of an operation that was accepted at `accepted_at`.
pub(crate) fn steps(records: Vec<StepRecord>, accepted_at: Timestamp) -> Vec<Step> {
    let waiting = waiting::of_steps(&records, accepted_at);
    records.into_iter().zip(waiting).map(|(record, waiting)| step(record, waiting)).collect()
}

fn step(record: StepRecord, waiting: Option<Waiting>) -> Step {
    Step {
        waiting,
        awaits: waiting::step_awaits(&record),
        key: record.spec.key.to_string(),
        phase: record.spec.phase,
        state: record.state.to_string(),
        attempts: record.attempts,
        task: record.task.map(|id| id.to_string()),
        detail: record.detail,
        fault: record.fault.map(fault),
        started_at: record.started_at.map(|at| at.to_string()),
        ended_at: record.ended_at.map(|at| at.to_string()),
    }
}

pub(crate) fn grant(record: AccessGrantRecord) -> AccessGrant {
    AccessGrant {
        id: record.id.to_string(),
        workload: record.workload.to_string(),
        kind: record.kind,
        role: record.role,
        requested_by: record.requested_by,
        reason: record.reason,
        created_at: record.created_at.to_string(),
        expires_at: record.expires_at.to_string(),
        revoked_at: record.revoked_at.map(|at| at.to_string()),
    }
}

fn offered_role(role: &access::OfferedRole) -> OfferedRole {
    OfferedRole {
        name: role.name.to_owned(),
        permission: role.permission.to_string(),
        check: role.check.to_owned(),
        check_merged: role.check_merged.to_owned(),
    }
}

pub(crate) fn access(answer: access::AccessDescription) -> AccessAnswer {
    let kind = |kind: access::AccessKind| AccessKind {
        name: kind.name.to_owned(),
        default: kind.default,
        ttl_seconds: kind.ttl_seconds,
        ttl_seconds_max: kind.ttl_seconds_max,
        roles: kind.roles.iter().map(|role| role.name.to_owned()).collect(),
        offered_roles: kind.roles.iter().map(offered_role).collect(),
        note: kind.note.to_owned(),
    };
    AccessAnswer {
        endpoint: answer.endpoint,
        reachability: answer.reachability.to_owned(),
        notes: answer.notes,
        kinds: answer.kinds.into_iter().map(kind).collect(),
        grants: answer.grants.into_iter().map(grant).collect(),
    }
}

fn fault(fault: gpuaas_model::Fault) -> Fault {
    let evidence = fault.evidence;
    Fault {
        code: fault.code,
        summary: fault.summary,
        evidence_source: evidence.as_ref().map(|evidence| evidence.source.clone()),
        evidence_at: evidence.as_ref().and_then(|evidence| evidence.at).map(|at| at.to_string()),
        evidence: evidence.map(|evidence| evidence.text),
        next: fault.next.text,
        command: fault.next.command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_healthy_workloads_without_repair_are_active() {
        let of = |lifecycle, health, recovery| section(lifecycle, health, Some(recovery));
        assert_eq!(of(Lifecycle::Running, Health::Healthy, Recovery::None), "active");
        assert_eq!(of(Lifecycle::Running, Health::Degraded, Recovery::Resumable), "needs_attention");
        assert_eq!(of(Lifecycle::Running, Health::Healthy, Recovery::ManualIntervention), "needs_attention");
        assert_eq!(of(Lifecycle::Running, Health::Healthy, Recovery::RepairAvailable), "needs_attention");
        assert_eq!(of(Lifecycle::Deploying, Health::Progressing, Recovery::None), "needs_attention");
        assert_eq!(of(Lifecycle::Cancelled, Health::None, Recovery::Resumable), "needs_attention");
        assert_eq!(of(Lifecycle::Decommissioned, Health::None, Recovery::None), "history");
        assert!(Lifecycle::ALL.iter().all(|lifecycle| SECTIONS.contains(&section(*lifecycle, Health::Healthy, None))));
    }
}
