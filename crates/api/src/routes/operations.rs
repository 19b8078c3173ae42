//! Operations and their steps.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{List, Operation, OperationDetail};
use gpuaas_engine::{CommandError, commands::operation};
use gpuaas_model::OperationId;
use gpuaas_store::OperationFilter;

use serde::Deserialize;
use utoipa::IntoParams;

use super::nodes::parsed;
use crate::{
    auth::Authenticated,
    lookup,
    page::{PageParams, Params},
    problem::ApiProblem,
    state::ApiState,
    views,
};

/// Filters of operations.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationParams {
    /// Name or id of the project.
    project: Option<String>,
    /// Name or id of the workload.
    workload: Option<String>,
    /// State of the operation.
    state: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

/// Lists operations that the caller may see, oldest first.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "operations", security(("token" = [])), params(OperationParams),
    extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("operation list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["not_found", "query_invalid"]))
    ),
    responses((status = 200, body = List<Operation>))
)]
pub(crate) async fn list_operations(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<OperationParams>,
) -> Result<Json<List<Operation>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let project = lookup::listed_project(&mut reader, &caller, params.project.as_deref()).await?;
    let workload = match &params.workload {
        Some(key) => Some(lookup::workload(&mut reader, &caller, params.project.as_deref(), key).await?.id),
        None => None,
    };
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let operation_state = parsed(params.state.as_deref(), "state")?;
    let filter = OperationFilter { project, workload, state: operation_state, page: page.page() };
    let operations = reader.operations(&filter).await?;
    let next_cursor = page.next_cursor(&operations, |operation| operation.id.to_string());
    Ok(Json(List::new(operations.into_iter().map(views::operation).collect(), next_cursor)))
}

/// Returns an operation with its steps.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("operation show")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["not_found"]))
    ),
    responses((status = 200, body = OperationDetail))
)]
pub(crate) async fn get_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<OperationDetail>, ApiProblem> {
    let id: OperationId = key.parse().map_err(|_| CommandError::not_found("operation", &key))?;
    let mut reader = state.engine.store().read().await?;
    let record = reader.operation(id).await?;
    caller.require_visible(record.project, "operation", id)?;
    let steps = reader.steps_of(id).await?.into_iter().map(views::step).collect();
    Ok(Json(OperationDetail { operation: views::operation(record), steps }))
}

/// Requests the cancellation of an operation.
///
/// Running steps are asked to stop. Steps that have not begun never run.
#[utoipa::path(
    post, path = "/api/v1/operations/{id}/cancel", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    extensions(
        ("x-permission" = json!("operations.control")), ("x-cli" = json!("operation cancel")), ("x-audit" = json!("operation.cancel")), ("x-event" = json!("operation.ended")),
        ("x-errors" = json!(["not_found", "state_conflict"]))
    ),
    responses((status = 200, body = Operation))
)]
pub(crate) async fn cancel_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Operation>, ApiProblem> {
    let id: OperationId = key.parse().map_err(|_| CommandError::not_found("operation", &key))?;
    Ok(Json(views::operation(operation::cancel(&state.engine, &caller, id).await?)))
}
