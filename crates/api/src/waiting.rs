//! Explained waits in responses, and what a workload waits for as a sentence with its reason.

use gpuaas_api_types as api;
use gpuaas_engine::waiting::{
    allocation_row, current_step, member_row, node_link, node_row, operation_row, step_row, task_row, workload_row,
};
use gpuaas_model::{Name, OperationState, StepState, TaskType, Timestamp};
use gpuaas_planner::{
    StepAction,
    waiting::{self, Awaited, ControllerRow, awaited},
};
use gpuaas_store::{
    AllocationRecord, EnrollmentRecord, MemberRecord, NodeRecord, OperationRecord, StepRecord, TaskRecord,
    WorkloadParts, WorkloadRecord,
};

fn shown(of: gpuaas_model::Waiting) -> api::Waiting {
    api::Waiting {
        what: of.what,
        from: of.from.to_string(),
        since: of.since.to_string(),
        until: of.until.map(|at| at.to_string()),
        evidence: of.evidence,
        next: of.next.text,
        command: of.next.command,
    }
}

/// Explains a workload.
pub(crate) fn of_workload(record: &WorkloadRecord, parts: &WorkloadParts) -> Option<api::Waiting> {
    let open = parts.open_operation().map(|operation| (operation, parts.current_step.as_ref()));
    waiting::workload(&workload_row(record, &parts.members, open)).map(shown)
}

/// Explains the wait for a workload's controller.
pub(crate) fn of_controller(controller: &ControllerRow<'_>) -> Option<api::Waiting> {
    waiting::controller(controller).map(shown)
}

/// Explains a member of `workload`, whose open operation has `steps`.
pub(crate) fn of_member(
    record: &MemberRecord,
    workload: &Name,
    open: Option<&OperationRecord>,
    steps: &[StepRecord],
) -> Option<api::Waiting> {
    let (name, current) = (record.name(), current_step(steps, Some(record.id)));
    waiting::member(&member_row(record, (name.as_str(), workload.as_str()), open, current)).map(shown)
}

/// Explains an operation; `current` is its first step in progress.
pub(crate) fn of_operation(
    record: &OperationRecord,
    workload: &Name,
    current: Option<&StepRecord>,
) -> Option<api::Waiting> {
    waiting::operation(&operation_row(record, workload.as_str(), current)).map(shown)
}

/// Explains the steps of an operation that was accepted at `accepted_at`, in their order.
pub(crate) fn of_steps(records: &[StepRecord], accepted_at: Timestamp) -> Vec<Option<api::Waiting>> {
    let rows: Vec<_> = records.iter().map(|record| step_row(record, accepted_at)).collect();
    waiting::steps(&rows).into_iter().map(|of| of.map(shown)).collect()
}

/// Names who has to act while a step runs.
pub(crate) fn step_awaits(record: &StepRecord) -> String {
    awaited(&record.spec).from.to_string()
}

/// Explains a node; `enrollment` is a string of it that can be redeemed now.
pub(crate) fn of_node(record: &NodeRecord, enrollment: Option<&EnrollmentRecord>) -> Option<api::Waiting> {
    waiting::node(&node_row(record, enrollment)).map(shown)
}

/// Explains an allocation of a node.
pub(crate) fn of_allocation(record: &AllocationRecord, node: &NodeRecord) -> Option<api::Waiting> {
    waiting::allocation(&allocation_row(record, node)).map(shown)
}

/// Explains a task on a node; `step` is the one that it executes.
pub(crate) fn of_task(record: &TaskRecord, node: &NodeRecord, step: Option<&StepRecord>) -> Option<api::Waiting> {
    waiting::task(&task_row(record, node_link(node), step)).map(shown)
}

/// Describes the first step in progress of the open operation, as the end of a sentence that begins with "waiting for".
pub(crate) fn waiting_for(parts: &WorkloadParts, now: Timestamp) -> Option<String> {
    let open = parts.open_operation()?;
    match &parts.current_step {
        Some(step) => Some(describe(step, now)),
        None if open.state == OperationState::Queued => Some("its operation to begin".to_owned()),
        None => None,
    }
}

fn describe(step: &StepRecord, now: Timestamp) -> String {
    let Awaited { subject, purpose, .. } = awaited(&step.spec);
    let reason = reason(step, subject).map(|reason| format!(": {reason}")).unwrap_or_default();
    let age = step.started_at.map(|at| format!("for {} s", now.since(at).as_secs()));
    let retry_at = step.not_before.filter(|at| step.state == StepState::Backoff && *at > now);
    let retry = retry_at.map(|at| format!("next attempt in {} s", at.since(now).as_millis().div_ceil(1_000)));
    let times: Vec<String> = age.into_iter().chain(retry).collect();
    let times = if times.is_empty() { String::new() } else { format!(" ({})", times.join("; ")) };
    format!("{subject} to {purpose}{reason}{times}")
}

/// Returns the reason: the failure of the last attempt, or the progress of this one. A starting service reports the last line of its log,
/// which explains nothing by itself.
fn reason<'s>(step: &'s StepRecord, subject: &str) -> Option<&'s str> {
    let starts = matches!(step.spec.action, StepAction::NodeTask { task: TaskType::Rke2Start, .. });
    if starts && step.state == StepState::Running {
        return Some("its service is not ready yet");
    }
    let detail = step.detail.as_deref()?;
    // Summaries of faults begin with the member's name.
    Some(detail.strip_prefix(subject).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(detail))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuaas_model::{MemberEvent, NodeId, OperationId, StepId};
    use gpuaas_planner::{RecordKind, StepKey, StepSpec};

    use super::*;

    fn step(key: StepKey, action: StepAction, detail: &str) -> StepRecord {
        let spec = StepSpec::new(key, "joining", action, Duration::from_millis(1));
        let (id, operation) = (StepId::from_uuid(uuid::Uuid::nil()), OperationId::from_uuid(uuid::Uuid::nil()));
        StepRecord {
            state: StepState::Running,
            attempts: 1,
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
            started_at: Some(Timestamp::from_millis(1_000)),
            ..StepRecord::pending(id, operation, 0, spec)
        }
    }

    #[test]
    fn wait_is_a_sentence_with_its_reason_and_no_log_line() {
        let now = Timestamp::from_millis(32_000);
        let task = |task| StepAction::NodeTask { node: NodeId::from_uuid(uuid::Uuid::nil()), task };
        let call = || StepAction::ClusterCall { call: "kube_node_ready".to_owned() };
        let start = step(StepKey::of("agent-1", "start"), task(TaskType::Rke2Start), "time=x level=info msg=\"etcd\"");
        assert_eq!(describe(&start, now), "agent-1 to start: its service is not ready yet (for 31 s)");
        let mut wait = step(StepKey::of("agent-2", "wait-ready"), call(), "kubelet not ready");
        wait.spec.on_success = Some(MemberEvent::BecameReady);
        assert_eq!(describe(&wait, now), "agent-2 to become ready in the cluster: kubelet not ready (for 31 s)");
        let record = StepAction::Record { record: RecordKind::AwaitNode };
        let lost = step(StepKey::of("agent-1", "await-node"), record, "gpu-2 has been unreachable since noon");
        let expected = "agent-1 to connect again: gpu-2 has been unreachable since noon (for 31 s)";
        assert_eq!(describe(&lost, now), expected);
        let failed = StepRecord {
            state: StepState::Backoff,
            not_before: Some(Timestamp::from_millis(35_500)),
            ..step(StepKey::of("agent-2", "fetch"), task(TaskType::ArtifactFetch), "agent-2: the file ended early")
        };
        let expected = "agent-2 to fetch the release: the file ended early (for 31 s; next attempt in 4 s)";
        assert_eq!(describe(&failed, now), expected);
        let cluster = StepRecord { started_at: None, ..step(StepKey::named("api_ready"), call(), "") };
        assert_eq!(describe(&cluster, now), "the cluster to respond");
        let milestone = StepAction::Record { record: RecordKind::Milestone };
        let own = step(StepKey::named("ready"), milestone, "");
        let awaits = [&start, &wait, &lost, &cluster, &own].map(step_awaits);
        assert_eq!(awaits, ["node", "cluster", "node", "cluster", "platform"]);
    }
}
