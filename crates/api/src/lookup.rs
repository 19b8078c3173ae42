//! Finds objects by name or id, as clients name them.

use gpuaas_engine::{
    Caller, CommandError,
    ownership::{self, VisibleNode},
};
use gpuaas_model::{Code, Name, NodeId, ProjectId, WorkloadId};
use gpuaas_store::{NodeRecord, ProjectRecord, Reader, WorkloadRecord};

use crate::problem::ApiProblem;

/// Whether anything can be called so. What cannot be is not looked for: a database has texts of its own that it does not take.
fn is_name(key: &str) -> bool {
    key.parse::<Name>().is_ok()
}

/// The node of that name or id.
pub(crate) async fn node(reader: &mut Reader, key: &str) -> Result<NodeRecord, ApiProblem> {
    if let Ok(id) = key.parse::<NodeId>() {
        return Ok(reader.node(id).await?);
    }
    let found = if is_name(key) { reader.node_by_name(key).await? } else { None };
    Ok(found.ok_or_else(|| CommandError::not_found("node", key))?)
}

/// The node of that name or id, if the caller may see it; what the caller does not see looks absent.
pub(crate) async fn visible_node(reader: &mut Reader, caller: &Caller, key: &str) -> Result<VisibleNode, ApiProblem> {
    let found = node(reader, key).await?;
    Ok(ownership::visible_node(reader, caller, found, key).await?)
}

/// The project of that name or id.
pub(crate) async fn project(reader: &mut Reader, key: &str) -> Result<ProjectRecord, ApiProblem> {
    if let Ok(id) = key.parse::<ProjectId>() {
        return Ok(reader.project(id).await?);
    }
    let found = if is_name(key) { reader.project_by_name(key).await? } else { None };
    Ok(found.ok_or_else(|| CommandError::not_found("project", key))?)
}

/// The workload of that id, or of that name in the caller's project; what the caller does not see looks absent.
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

/// The project whose objects a list holds: the one that is named, or the caller's own; `None` for all that the platform holds.
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

/// The project that a request is about: the one it names, or the caller's own.
pub(crate) async fn caller_project(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
) -> Result<ProjectId, ApiProblem> {
    match (project_key, caller.principal.project) {
        (Some(key), _) => {
            let project = project(reader, key).await?.id;
            caller.must_see(project, "project", key)?;
            Ok(project)
        }
        (None, Some(own)) => Ok(own),
        (None, None) => Err(ApiProblem::new(Code::QueryInvalid, "which project? a platform admin belongs to none")
            .about("project")
            .then("name it")),
    }
}
