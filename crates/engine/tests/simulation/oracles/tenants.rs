//! Checks that everything that reaches or leaves a node belongs to the project that holds the node at that time.
//!
//! Uses only the rows of allocations, nodes, members, workloads and secrets, and no function of the engine.

use std::{fmt, sync::Arc};

use gpuaas_model::{AllocationState, EnrolledNode, NodeId, ProjectId, SecretId, TaskType};
use gpuaas_store::{AllocationFilter, AllocationRecord, Reader, StoreError};
use gpuaas_trust::TaskStatement;

use super::Oracle;
use crate::simulation::Simulation;

/// An event that brings something to a node or reveals something of it.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// The node accepts a task.
    Begun(Box<TaskStatement>),
    /// The node has read a secret.
    Secret(EnrolledNode, SecretId),
    /// The control plane has opened an artifact for the node.
    Artifact(EnrolledNode),
    /// A line of the node's journal has reached a client of the project.
    Journal(EnrolledNode, ProjectId),
    /// Bytes are sent to the node through a tunnel that was opened for the project.
    Tunnel(EnrolledNode, Option<ProjectId>),
    /// A client of the project views the node.
    Shown(NodeId, ProjectId),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(task) => {
                write!(f, "{} {} for {:?} began on {}", task.task_type, task.task, task.workload, task.node)
            }
            Self::Secret(node, secret) => write!(f, "secret {secret} reached {node}"),
            Self::Artifact(node) => write!(f, "an artifact was opened for {node}"),
            Self::Journal(node, project) => write!(f, "a journal line of {node} reached project {project}"),
            Self::Tunnel(node, project) => write!(f, "a tunnel byte of project {project:?} went to {node}"),
            Self::Shown(node, project) => write!(f, "{node} was shown to project {project}"),
        }
    }
}

/// Judges an effect against the rows at this time.
pub(crate) fn check(simulation: &Arc<Simulation>, effect: Effect) {
    let within = simulation.clone();
    simulation.scheduler.spawn_first(simulation.outside, async move {
        let violation = async { find_violation(&mut within.store.read().await?, &effect).await };
        match violation.await {
            Ok(None) => {}
            Ok(Some(why)) => within.report_violation(Oracle::Isolation, format!("{effect}, and {why}")),
            Err(error) => {
                within.report_violation(Oracle::Isolation, format!("{effect}: the rows cannot be read: {error}"))
            }
        }
    });
}

/// Returns why an effect is a violation, if it is one.
async fn find_violation(reader: &mut Reader, effect: &Effect) -> Result<Option<String>, StoreError> {
    match effect {
        Effect::Begun(statement) => begun(reader, statement).await,
        Effect::Secret(node, secret) => {
            let Some(workload) = reader.secret(*secret).await?.workload else {
                return Ok(Some("it belongs to no workload".to_owned()));
            };
            let project = reader.workload(workload).await?.project;
            not_held(reader, project, *node).await
        }
        Effect::Artifact(node) => match active(reader, node.node).await? {
            Some(held) => not_held(reader, held.project, *node).await,
            None => Ok(Some("no project holds it".to_owned())),
        },
        Effect::Journal(node, project) | Effect::Tunnel(node, Some(project)) => not_held(reader, *project, *node).await,
        Effect::Tunnel(_, None) => Ok(Some("it is for no project".to_owned())),
        Effect::Shown(node, project) => {
            let filter = AllocationFilter { node: Some(*node), project: Some(*project), ..AllocationFilter::default() };
            let over = [AllocationState::Released, AllocationState::Failed];
            let is_held = reader.allocations(&filter).await?.iter().any(|held| !over.contains(&held.state));
            Ok((!is_held).then(|| "the project does not hold it".to_owned()))
        }
    }
}

async fn begun(reader: &mut Reader, statement: &TaskStatement) -> Result<Option<String>, StoreError> {
    let enrolled = EnrolledNode { node: statement.node, epoch: statement.epoch };
    let Some(workload) = statement.workload else {
        let is_platforms = statement.task_type.parse::<TaskType>().is_ok_and(|task| !task.is_for_workload());
        return Ok((!is_platforms).then(|| "it is for no workload".to_owned()));
    };
    let project = reader.workload(workload).await?.project;
    if let Some(why) = not_held(reader, project, enrolled).await? {
        return Ok(Some(why));
    }
    let held = active(reader, enrolled.node).await?.map(|held| held.id);
    let members = reader.members_on(enrolled.node).await?;
    let lives =
        members.iter().any(|member| member.workload == workload && member.place.allocation() == held && held.is_some());
    let is_its = lives && held == statement.allocation;
    Ok((!is_its).then(|| format!("its allocation {:?} has no member of the workload", statement.allocation)))
}

async fn active(reader: &mut Reader, node: NodeId) -> Result<Option<AllocationRecord>, StoreError> {
    let filter =
        AllocationFilter { node: Some(node), state: Some(AllocationState::Active), ..AllocationFilter::default() };
    Ok(reader.allocations(&filter).await?.pop())
}

/// Returns why the project does not hold the node in the given enrollment, or `None` if it does.
async fn not_held(reader: &mut Reader, project: ProjectId, node: EnrolledNode) -> Result<Option<String>, StoreError> {
    let (held, row) = (active(reader, node.node).await?, reader.node(node.node).await?);
    Ok(match held {
        None => Some("no project holds it".to_owned()),
        Some(held) if held.project != project => Some(format!("project {} holds it", held.project)),
        Some(_) if row.epoch != node.epoch => Some(format!("it is in epoch {}", row.epoch)),
        Some(_) => None,
    })
}
