//! Finds objects by name or id, as clients name them.

use gpuaas_engine::CommandError;
use gpuaas_model::{NodeId, ProjectId};
use gpuaas_store::{NodeRecord, ProjectRecord, Reader};

use crate::problem::ApiProblem;

/// The node of that name or id.
pub(crate) async fn node(reader: &mut Reader, key: &str) -> Result<NodeRecord, ApiProblem> {
    if let Ok(id) = key.parse::<NodeId>() {
        return Ok(reader.node(id).await?);
    }
    Ok(reader.node_by_name(key).await?.ok_or_else(|| CommandError::not_found("node", key))?)
}

/// The project of that name or id.
pub(crate) async fn project(reader: &mut Reader, key: &str) -> Result<ProjectRecord, ApiProblem> {
    if let Ok(id) = key.parse::<ProjectId>() {
        return Ok(reader.project(id).await?);
    }
    Ok(reader.project_by_name(key).await?.ok_or_else(|| CommandError::not_found("project", key))?)
}
