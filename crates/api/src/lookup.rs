//! Finds objects by the name or id that a client sends.

use gpuaas_engine::{
    Caller, CommandError,
    ownership::{self, VisibleNode},
};
use gpuaas_model::{Code, Name, NodeId, ProjectId, WorkloadId};
use gpuaas_store::{NodeRecord, ProjectRecord, Reader, WorkloadRecord};

use crate::problem::ApiProblem;

/// Returns whether `key` can be a name. Other texts are not looked up, because a database rejects some of them.
fn is_name(key: &str) -> bool {
    key.parse::<Name>().is_ok()
}

/// Returns the node with this name or id.
pub(crate) async fn node(reader: &mut Reader, key: &str) -> Result<NodeRecord, ApiProblem> {
    if let Ok(id) = key.parse::<NodeId>() {
        return Ok(reader.node(id).await?);
    }
    let found = if is_name(key) { reader.node_by_name(key).await? } else { None };
    Ok(found.ok_or_else(|| CommandError::not_found("node", key))?)
}

/// Returns the node with this name or id if the caller may see it; otherwise it is reported as absent.
pub(crate) async fn visible_node(reader: &mut Reader, caller: &Caller, key: &str) -> Result<VisibleNode, ApiProblem> {
    let found = node(reader, key).await?;
    Ok(ownership::visible_node(reader, caller, found, key).await?)
}

/// Returns the project with this name or id.
pub(crate) async fn project(reader: &mut Reader, key: &str) -> Result<ProjectRecord, ApiProblem> {
    if let Ok(id) = key.parse::<ProjectId>() {
        return Ok(reader.project(id).await?);
    }
    let found = if is_name(key) { reader.project_by_name(key).await? } else { None };
    Ok(found.ok_or_else(|| CommandError::not_found("project", key))?)
}

/// Returns the workload with this id, or with this name in the caller's project. A workload that the caller may not see is reported as
/// absent.
pub(crate) async fn workload(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
    key: &str,
) -> Result<WorkloadRecord, ApiProblem> {
    let found = match key.parse::<WorkloadId>() {
        Ok(id) => Some(reader.workload(id).await?),
        Err(_) => {
            let project = caller_project(reader, caller, project_key).await?;
            if is_name(key) { reader.workload_by_name(project, key).await? } else { None }
        }
    };
    let found = found.filter(|workload| caller.principal.sees(workload.project));
    Ok(found.ok_or_else(|| CommandError::not_found("workload", key))?)
}

/// Returns the project whose objects a list contains: the named one, or the caller's own; `None` for all projects.
pub(crate) async fn listed_project(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
) -> Result<Option<ProjectId>, ApiProblem> {
    match project_key {
        Some(_) => caller_project(reader, caller, project_key).await.map(Some),
        None => Ok(caller.principal.project),
    }
}

/// Returns the project of a request: the named one, or the caller's own.
pub(crate) async fn caller_project(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
) -> Result<ProjectId, ApiProblem> {
    match (project_key, caller.principal.project) {
        (Some(key), _) => {
            let project = project(reader, key).await?.id;
            caller.require_visible(project, "project", key)?;
            Ok(project)
        }
        (None, Some(own)) => Ok(own),
        (None, None) => {
            Err(ApiProblem::new(Code::QueryInvalid, "the request names no project, and this token has none")
                .about("project")
                .then("name a project"))
        }
    }
}
