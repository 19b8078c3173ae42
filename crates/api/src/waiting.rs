//! What a workload waits for, as a sentence with its reason.

use gpuaas_model::{OperationState, StepState, TaskType, Timestamp};
use gpuaas_planner::StepAction;
use gpuaas_store::{StepRecord, WorkloadParts};

/// Describes the first step in progress of the open operation, as the end of a sentence that begins with "waiting for".
pub(crate) fn waiting_for(parts: &WorkloadParts, now: Timestamp) -> Option<String> {
    let open = parts.open_operation.as_ref()?;
    match &parts.current_step {
        Some(step) => Some(describe(step, now)),
        None if open.state == OperationState::Queued => Some("its operation to begin".to_owned()),
        None => None,
    }
}

fn describe(step: &StepRecord, now: Timestamp) -> String {
    let (subject, purpose) = awaited(step);
    let reason = reason(step, subject).map(|reason| format!(": {reason}")).unwrap_or_default();
    let age = step.started_at.map(|at| format!("for {} s", now.since(at).as_secs()));
    let retry_at = step.not_before.filter(|at| step.state == StepState::Backoff && *at > now);
    let retry = retry_at.map(|at| format!("next attempt in {} s", at.since(now).as_millis().div_ceil(1_000)));
    let times: Vec<String> = age.into_iter().chain(retry).collect();
    let times = if times.is_empty() { String::new() } else { format!(" ({})", times.join("; ")) };
    format!("{subject} to {purpose}{reason}{times}")
}

/// Returns who is waited for, and the purpose as an infinitive without `to`.
fn awaited(step: &StepRecord) -> (&str, &'static str) {
    let member = step.spec.key.as_str().split_once('/').map(|(member, _)| member);
    match &step.spec.action {
        StepAction::NodeTask { task, .. } => (member.unwrap_or("its node"), purpose(*task)),
        StepAction::ClusterCall { .. } => match member {
            Some(member) => (member, "become ready in the cluster"),
            None => ("the cluster", "respond"),
        },
        StepAction::Record { .. } => ("its nodes", "be available"),
    }
}

const fn purpose(task: TaskType) -> &'static str {
    match task {
        TaskType::Preflight => "pass the checks of its node",
        TaskType::ArtifactFetch => "fetch the release",
        TaskType::Rke2Install => "install the release",
        TaskType::Rke2Configure => "write its configuration",
        TaskType::Rke2Start => "start",
        TaskType::Rke2KubeconfigRead => "hand over the kubeconfig",
        TaskType::Rke2Stop => "stop",
        TaskType::Rke2Uninstall => "uninstall the release",
        TaskType::Residue => "confirm that nothing is left on its node",
        TaskType::Noop | TaskType::Inspect | TaskType::Fix | TaskType::Rke2Enable | TaskType::Rke2Observe => "respond",
    }
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
    use gpuaas_model::{NodeId, OperationId, StepId};
    use gpuaas_planner::{FailureScope, Retry, StepKey, StepSpec};

    use super::*;

    fn step(key: StepKey, action: StepAction, detail: &str) -> StepRecord {
        let spec = StepSpec {
            key,
            phase: "joining".to_owned(),
            member: None,
            action,
            needs: Vec::new(),
            after: Vec::new(),
            on_first_start: None,
            on_success: None,
            spares_member: false,
            deadline_ms: 1,
            retry: Retry::QUICK,
            scope: FailureScope::Member,
        };
        StepRecord {
            id: StepId::from_uuid(uuid::Uuid::nil()),
            operation: OperationId::from_uuid(uuid::Uuid::nil()),
            position: 0,
            spec,
            state: StepState::Running,
            attempts: 1,
            interruptions: 0,
            not_before: None,
            task: None,
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
            fault: None,
            started_at: Some(Timestamp::from_millis(1_000)),
            deadline_at: None,
            ended_at: None,
        }
    }

    #[test]
    fn wait_is_a_sentence_with_its_reason_and_no_log_line() {
        let now = Timestamp::from_millis(32_000);
        let task = |task| StepAction::NodeTask { node: NodeId::from_uuid(uuid::Uuid::nil()), task };
        let call = || StepAction::ClusterCall { call: "kube_node_ready".to_owned() };
        let start = step(StepKey::of("agent-1", "start"), task(TaskType::Rke2Start), "time=x level=info msg=\"etcd\"");
        assert_eq!(describe(&start, now), "agent-1 to start: its service is not ready yet (for 31 s)");
        let wait = step(StepKey::of("agent-2", "wait-ready"), call(), "kubelet not ready");
        assert_eq!(describe(&wait, now), "agent-2 to become ready in the cluster: kubelet not ready (for 31 s)");
        let failed = StepRecord {
            state: StepState::Backoff,
            not_before: Some(Timestamp::from_millis(35_500)),
            ..step(StepKey::of("agent-2", "fetch"), task(TaskType::ArtifactFetch), "agent-2: the file ended early")
        };
        let expected = "agent-2 to fetch the release: the file ended early (for 31 s; next attempt in 4 s)";
        assert_eq!(describe(&failed, now), expected);
        let cluster = StepRecord { started_at: None, ..step(StepKey::named("api_ready"), call(), "") };
        assert_eq!(describe(&cluster, now), "the cluster to respond");
    }
}
