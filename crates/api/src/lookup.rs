//! Finds objects by what a client sends: a name, an id, or the first characters of an id. If a name and the beginning of an id
//! are equal, the name is meant.

use gpuaas_engine::{
    Caller, CommandError,
    ownership::{self, VisibleNode},
};
use gpuaas_model::{AllocationId, Code, Name, NodeId, Permission, ProjectId, WorkloadId};
use gpuaas_store::{IdKind, IdPrefix, NodeRecord, ProjectRecord, Reader, WorkloadRecord};

use crate::problem::ApiProblem;

/// Advice for callers who may not list nodes.
const NODES_OF_PROJECT: &str = "see the nodes of the project: gpuaas allocation list";

/// Ids that a refusal of an ambiguous prefix names.
const CANDIDATES_NAMED: usize = 5;

/// Returns the key as a refusal repeats it: a complete id in its usual spelling. Objects that do not exist and those that the caller may not
/// see would otherwise differ in the spelling of a request's id.
fn spelled<T: std::str::FromStr + ToString>(key: &str) -> String {
    key.parse::<T>().map_or_else(|_| key.to_owned(), |id| id.to_string())
}

/// Returns whether `key` can be a name. Other texts are not looked up, because a database rejects some of them.
fn is_name(key: &str) -> bool {
    key.parse::<Name>().is_ok()
}

/// Returns the id that `key` is or begins. Whether an object with a complete id exists is not checked.
pub(crate) async fn id<T: std::str::FromStr>(
    reader: &mut Reader,
    caller: &Caller,
    kind: IdKind,
    key: &str,
) -> Result<T, ApiProblem> {
    if let Ok(id) = key.parse() {
        return Ok(id);
    }
    // The ids that begin with a key would show objects of other workloads.
    if caller.principal.role.is_of_workload() && kind != IdKind::Project {
        return Err(CommandError::not_found(kind.noun(), key).then("give the whole id").into());
    }
    let found = id_beginning(reader, kind, caller.principal.project, key).await?;
    Ok(found.ok_or_else(|| CommandError::not_found(kind.noun(), key))?)
}

/// Returns the only id that begins with `key`: of a project, or of all. Refuses if there are several.
async fn id_beginning<T: std::str::FromStr>(
    reader: &mut Reader,
    kind: IdKind,
    project: Option<ProjectId>,
    key: &str,
) -> Result<Option<T>, ApiProblem> {
    let Some(prefix) = IdPrefix::parse(key) else { return Ok(None) };
    let found = reader.ids_beginning(kind, &prefix, project).await?;
    if let [] | [_] = found.as_slice() {
        return Ok(found.first().and_then(|id| id.parse().ok()));
    }
    let named = found.iter().take(CANDIDATES_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if found.len() > CANDIDATES_NAMED { " and others" } else { "" };
    Err(ApiProblem::new(
        Code::IdAmbiguous,
        format!("several {}s have ids that begin with {key}: {named}{more}", kind.noun()),
    )
    .about(kind.noun().replace(' ', "_"))
    .then("give more characters of the id"))
}

/// Returns the node with this name or id, unless it is deleted.
pub(crate) async fn node(reader: &mut Reader, caller: &Caller, key: &str) -> Result<NodeRecord, ApiProblem> {
    if key.parse::<NodeId>().is_err()
        && is_name(key)
        && let Some(node) = reader.node_by_name(key).await?
    {
        return Ok(node);
    }
    let id = id(reader, caller, IdKind::Node, key).await?;
    let node = Some(reader.node(id).await?).filter(|node| node.deleted_at.is_none());
    Ok(node.ok_or_else(|| CommandError::not_found("node", spelled::<NodeId>(key)))?)
}

/// Returns the node with this name or id if the caller may see it; otherwise it is reported as absent.
pub(crate) async fn visible_node(reader: &mut Reader, caller: &Caller, key: &str) -> Result<VisibleNode, ApiProblem> {
    let found = async {
        let found = node(reader, caller, key).await?;
        Ok::<_, ApiProblem>(ownership::visible_node(reader, caller, found, &spelled::<NodeId>(key)).await?)
    };
    let lists_nodes = caller.principal.may(Permission::PlatformRead);
    found.await.map_err(
        |refused| if refused.is_not_found() && !lists_nodes { refused.then(NODES_OF_PROJECT) } else { refused },
    )
}

/// Returns the id of an allocation: of the open one of the node with this name, or the one that `key` is or begins. Whether the caller may see
/// an allocation with a complete id is not checked.
pub(crate) async fn allocation(reader: &mut Reader, caller: &Caller, key: &str) -> Result<AllocationId, ApiProblem> {
    if key.parse::<AllocationId>().is_err()
        && is_name(key)
        && let Some(node) = reader.node_by_name(key).await?
        && let Some(held) = reader.open_allocation_of(node.id).await?
        && caller.principal.sees(held.project)
    {
        return Ok(held.id);
    }
    id(reader, caller, IdKind::Allocation, key).await
}

/// Returns the project with this name or id.
pub(crate) async fn project(reader: &mut Reader, caller: &Caller, key: &str) -> Result<ProjectRecord, ApiProblem> {
    if key.parse::<ProjectId>().is_err()
        && is_name(key)
        && let Some(project) = reader.project_by_name(key).await?
    {
        return Ok(project);
    }
    let id = id(reader, caller, IdKind::Project, key).await?;
    Ok(reader.project(id).await?)
}

/// Returns the workload with this id, or with this name in the caller's project. A workload that the caller may not see is reported as
/// absent.
pub(crate) async fn workload(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
    key: &str,
) -> Result<WorkloadRecord, ApiProblem> {
    if caller.principal.role.is_of_workload() {
        return only_workload(reader, caller, project_key, key).await;
    }
    let id = match key.parse() {
        Ok(id) => Some(id),
        Err(_) => {
            let project = listed_project(reader, caller, project_key).await?;
            if let Some(project) = project.filter(|_| is_name(key))
                && let Some(workload) = reader.workload_by_name(project, key).await?
            {
                return Ok(workload);
            }
            let id = id_beginning(reader, IdKind::Workload, project, key).await?;
            if id.is_none() && project.is_none() && is_name(key) {
                refuse_name_without_project(reader, key).await?;
            }
            id
        }
    };
    let found = match id {
        Some(id) => Some(reader.workload(id).await?).filter(|workload| caller.principal.sees(workload.project)),
        None => None,
    };
    Ok(found.ok_or_else(|| CommandError::not_found("workload", spelled::<WorkloadId>(key)))?)
}

/// Returns the only workload that a list may be about; `None` for a caller who is not bound to one.
pub(crate) fn only_visible(caller: &Caller) -> Result<Option<WorkloadId>, ApiProblem> {
    let Some(own) = caller.principal.workload else {
        if caller.principal.role.is_of_workload() {
            return Err(ApiProblem::new(Code::Forbidden, "this token names no workload"));
        }
        return Ok(None);
    };
    Ok(Some(own))
}

/// Returns the only workload that exists for the caller, if `key` is its name, its id or the beginning of its id. No other is looked up, so
/// that neither names nor ids of others show.
async fn only_workload(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
    key: &str,
) -> Result<WorkloadRecord, ApiProblem> {
    listed_project(reader, caller, project_key).await?;
    let absent = || CommandError::not_found("workload", spelled::<WorkloadId>(key));
    let own = only_visible(caller)?.ok_or_else(absent)?;
    let workload = reader.workload(own).await?;
    let is_begun = || IdPrefix::parse(key).is_some() && own.to_string().starts_with(&key.to_ascii_lowercase());
    let is_meant = key == workload.name.as_str() || key.parse() == Ok(own) || is_begun();
    let is_visible = is_meant && caller.principal.sees_workload(workload.project, own);
    Ok(Some(workload).filter(|_| is_visible).ok_or_else(absent)?)
}

/// Refuses the name of workloads in projects that the request does not choose from, also if there is only one: which workload a name means
/// must not depend on what other projects contain.
async fn refuse_name_without_project(reader: &mut Reader, name: &str) -> Result<(), ApiProblem> {
    let projects: Vec<String> = reader
        .projects_with_workload(name, CANDIDATES_NAMED + 1)
        .await?
        .into_iter()
        .map(|project| project.to_string())
        .collect();
    let [first, ..] = projects.as_slice() else { return Ok(()) };
    let workloads = if projects.len() == 1 { "a workload in project" } else { "workloads in projects" };
    let listed = projects.iter().take(CANDIDATES_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if projects.len() > CANDIDATES_NAMED { " and others" } else { "" };
    let detail = format!("no project is selected: {name} is the name of {workloads} {listed}{more}");
    Err(ApiProblem::new(Code::QueryInvalid, detail)
        .about("project")
        .then(format!("select the project, for example with --project {first}")))
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

/// Returns the project whose history a request reads, like [`listed_project`]. The id of a deleted project is accepted.
pub(crate) async fn project_of_history(
    reader: &mut Reader,
    caller: &Caller,
    project_key: Option<&str>,
) -> Result<Option<ProjectId>, ApiProblem> {
    match project_key.and_then(|key| key.parse::<ProjectId>().ok()) {
        Some(id) if caller.principal.sees(id) => Ok(Some(id)),
        _ => listed_project(reader, caller, project_key).await,
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
            let project = project(reader, caller, key).await?.id;
            caller.require_visible(project, "project", spelled::<ProjectId>(key))?;
            Ok(project)
        }
        (None, Some(own)) => Ok(own),
        (None, None) => {
            Err(ApiProblem::new(Code::QueryInvalid, "no project is selected, and this token belongs to none")
                .about("project")
                .then("select a project with --project or GPUAAS_PROJECT; in a request, with the parameter `project`"))
        }
    }
}

#[cfg(test)]
mod tests;
