//! Project commands.

use gpuaas_model::{AuditAction, Code, EventKind, Name, Permission, ProjectId};
use gpuaas_store::ProjectRecord;
use serde_json::json;

use super::audit;
use crate::{caller::Caller, engine::Engine, error::CommandError, record::platform_event};

/// How many of a project's objects the refusal of its deletion names.
const NAMED_MAX: u32 = 10;

/// Creates a project.
pub async fn create(engine: &Engine, caller: &Caller, name: Name) -> Result<ProjectRecord, CommandError> {
    caller.require(Permission::ProjectsWrite)?;
    let ports = engine.ports();
    let id = ProjectId::generate(&*ports.clock, &*ports.entropy);
    let project = ProjectRecord { id, name, created_at: ports.clock.now(), deleted_at: None };
    let mut tx = engine.store().begin().await?;
    tx.insert_project(&project).await?;
    let data = json!({ "name": project.name });
    platform_event(&mut tx, EventKind::ProjectCreated, "project", id.to_string(), Some(caller.correlation), data)
        .await?;
    let target = format!("project/{}", project.name);
    audit(&mut tx, caller, AuditAction::ProjectCreate, target, Some(id), json!({})).await?;
    tx.commit().await?;
    Ok(project)
}

/// Deletes an empty project. Its name can be used again; its history stays.
pub async fn delete(engine: &Engine, caller: &Caller, id: ProjectId) -> Result<ProjectRecord, CommandError> {
    caller.require(Permission::ProjectsWrite)?;
    let now = engine.ports().clock.now();
    let mut tx = engine.store().begin().await?;
    let project = tx.project(id).await?;
    let contents = tx.project_contents(id, now, NAMED_MAX + 1).await?;
    if !contents.is_empty() {
        return Err(not_empty(&project, &contents));
    }
    let project = tx.delete_project(&project, now).await?;
    let data = json!({ "name": project.name });
    platform_event(&mut tx, EventKind::ProjectDeleted, "project", id.to_string(), Some(caller.correlation), data)
        .await?;
    let target = format!("project/{}", project.name);
    audit(&mut tx, caller, AuditAction::ProjectDelete, target, Some(id), json!({})).await?;
    caller.commit(tx).await?;
    Ok(project)
}

fn not_empty(project: &ProjectRecord, contents: &[String]) -> CommandError {
    let named = contents.iter().take(NAMED_MAX as usize).cloned().collect::<Vec<_>>().join(", ");
    let more = if contents.len() > NAMED_MAX as usize { " and more" } else { "" };
    let detail = format!("project {} is not empty: {named}{more}", project.name);
    let of = &project.name;
    let removals = [
        ("workload ", format!("gpuaas workload decommission NAME --project {of}")),
        ("allocation ", "gpuaas allocation release ID".to_owned()),
        ("service account ", format!("gpuaas service-account delete NAME --project {of}")),
        ("token ", "gpuaas token revoke ID".to_owned()),
    ];
    let is_left = |kind: &str| contents.iter().any(|object| object.starts_with(kind));
    let needed: Vec<&str> = removals.iter().filter(|(kind, _)| is_left(kind)).map(|(_, command)| &**command).collect();
    CommandError::new(Code::StateConflict, detail).then(format!("remove them first: {}", needed.join(", ")))
}
