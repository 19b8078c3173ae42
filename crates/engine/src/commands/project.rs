//! Project commands.

use gpuaas_model::{AuditAction, EventKind, Name, Permission, ProjectId};
use gpuaas_store::ProjectRecord;
use serde_json::json;

use super::audit;
use crate::{caller::Caller, engine::Engine, error::CommandError, record::platform_event};

/// Creates a project.
pub async fn create(engine: &Engine, caller: &Caller, name: Name) -> Result<ProjectRecord, CommandError> {
    caller.require(Permission::ProjectsWrite)?;
    let ports = engine.ports();
    let id = ProjectId::generate(&*ports.clock, &*ports.entropy);
    let project = ProjectRecord { id, name, created_at: ports.clock.now() };
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
