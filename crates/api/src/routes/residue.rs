//! What an operation found, removed and left on each node from which it removed a member.

use gpuaas_api_types::NodeResidue;
use gpuaas_model::{MemberId, NodeId, StepState, TaskType};
use gpuaas_planner::{RecordKind, StepAction};
use gpuaas_store::{OperationRecord, Reader, StepRecord, StoreError};
use gpuaas_wire::task::{ResidueReport, TaskOutcome};
use serde::Deserialize;
use serde_json::Value;

/// What tasks that remove an app report, whatever the app: what existed before, and what of it no longer exists.
#[derive(Default, Deserialize)]
struct Removal {
    #[serde(default)]
    found: Vec<String>,
    #[serde(default)]
    removed: Vec<String>,
}

/// Returns the report of each member whose residue check has ended or that was given up. If a check ended without a report, its node counts
/// as unchecked.
pub(super) async fn residue(
    reader: &mut Reader,
    operation: &OperationRecord,
    steps: &[StepRecord],
) -> Result<Vec<NodeResidue>, StoreError> {
    let is_end = |step: &&StepRecord| match &step.spec.action {
        StepAction::NodeTask { task: TaskType::Residue, .. } => step.state.is_final(),
        StepAction::Record { record: RecordKind::GiveUp } => step.state == StepState::Succeeded,
        StepAction::NodeTask { .. } | StepAction::ClusterCall { .. } | StepAction::Record { .. } => false,
    };
    let ends: Vec<&StepRecord> = steps.iter().filter(is_end).collect();
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let members = reader.members_of(operation.workload).await?;
    let node_of = |step: &StepRecord| match step.spec.action {
        StepAction::NodeTask { node, .. } => Some(node),
        StepAction::ClusterCall { .. } | StepAction::Record { .. } => {
            let member = members.iter().find(|member| Some(member.id) == step.spec.member);
            member.and_then(|member| member.place.node())
        }
    };
    let nodes: Vec<NodeId> = ends.iter().filter_map(|step| node_of(step)).collect();
    let names = reader.node_names(nodes).await?;
    let mut reports = Vec::new();
    for step in ends {
        let node = node_of(step);
        let node_name = node.and_then(|node| names.get(&node)).map(ToString::to_string).unwrap_or_default();
        let of_member = report(reader, operation, steps, (step, node)).await?;
        reports.push(NodeResidue { node_name, ..of_member });
    }
    Ok(reports)
}

/// Returns the report of one member, without the name of its node.
async fn report(
    reader: &mut Reader,
    operation: &OperationRecord,
    steps: &[StepRecord],
    (end, node): (&StepRecord, Option<NodeId>),
) -> Result<NodeResidue, StoreError> {
    let key = end.spec.key.to_string();
    let Removal { found, removed } = removal(reader, steps, end.spec.member).await?;
    let mut residue = NodeResidue {
        member: key.split_once('/').map_or(key.as_str(), |(member, _)| member).to_owned(),
        node_name: String::new(),
        items: Vec::new(),
        unchecked: Vec::new(),
        found,
        removed,
        given_up: None,
    };
    if matches!(end.spec.action, StepAction::Record { .. }) {
        let reason = operation.request().reason().map(str::to_owned).unwrap_or_default();
        residue.given_up = Some(format!("{reason} (by {})", operation.requested_by));
        residue.unchecked.push("what is left is unknown, because the member was given up".to_owned());
        return Ok(residue);
    }
    let result = result(reader, end).await?;
    match result.and_then(|result| serde_json::from_value::<ResidueReport>(result).ok()) {
        Some(report) => {
            residue.items = report.items.iter().map(ToString::to_string).collect();
            residue.unchecked = report.unseen;
        }
        // A check succeeds only on a clean node; its task may have been moved to an archive.
        None if end.state == StepState::Succeeded => {}
        None => residue.unchecked.push(unreported(reader, end, node).await?),
    }
    Ok(residue)
}

/// Returns what the removal of the member found and removed before its residue check.
async fn removal(reader: &mut Reader, steps: &[StepRecord], member: Option<MemberId>) -> Result<Removal, StoreError> {
    let mut removal = Removal::default();
    let removes = |step: &&StepRecord| {
        let is_task = matches!(step.spec.action, StepAction::NodeTask { task, .. } if task != TaskType::Residue);
        is_task && member.is_some() && step.spec.member == member
    };
    let tasks: Vec<&StepRecord> = steps.iter().filter(removes).collect();
    for step in tasks {
        let of_step = result(reader, step).await?.and_then(|result| serde_json::from_value::<Removal>(result).ok());
        let Removal { found, removed } = of_step.unwrap_or_default();
        removal.found.extend(found);
        removal.removed.extend(removed);
    }
    Ok(removal)
}

/// Returns the result of the step's last task; `None` if it failed, was never sent, or was moved to an archive.
async fn result(reader: &mut Reader, step: &StepRecord) -> Result<Option<Value>, StoreError> {
    let Some(id) = step.task else { return Ok(None) };
    match reader.task(id).await {
        Ok(task) => Ok(match task.outcome {
            Some(TaskOutcome::Succeeded { result }) => Some(result),
            Some(TaskOutcome::Failed { .. }) | None => None,
        }),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says that a node has not reported, and what is known of it.
async fn unreported(reader: &mut Reader, step: &StepRecord, node: Option<NodeId>) -> Result<String, StoreError> {
    let text = format!("the node has not reported: its check is {}", step.state);
    let Some(id) = node else { return Ok(text) };
    match reader.node(id).await {
        Ok(node) => {
            let inspected = node.inspected_at.map(|at| format!(", last inspected at {at}")).unwrap_or_default();
            Ok(format!("{text}; the node is {} since {}{inspected}", node.connectivity, node.connectivity_since))
        }
        // A node that was deleted since.
        Err(StoreError::NotFound { .. }) => Ok(text),
        Err(error) => Err(error),
    }
}
