//! Operations and their steps.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{List, Operation, OperationDetail, Problem};
use gpuaas_engine::{CommandError, commands::operation};
use gpuaas_model::OperationId;
use gpuaas_store::OperationFilter;

use crate::{auth::Authenticated, page::PageParams, page::Params, problem::ApiProblem, shown, state::ApiState};

/// Operations that the caller sees, oldest first.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "operations", security(("token" = [])), params(PageParams),
    responses((status = 200, body = List<Operation>), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn list_operations(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(page): Params<PageParams>,
) -> Result<Json<List<Operation>>, ApiProblem> {
    let filter = OperationFilter { project: caller.principal.project, page: page.page(), ..OperationFilter::default() };
    let operations = state.engine.store().read().await?.operations(&filter).await?;
    let next_cursor = page.next_cursor(&operations, |operation| operation.id.to_string());
    Ok(Json(List { items: operations.into_iter().map(shown::operation).collect(), next_cursor }))
}

/// An operation with its steps.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = OperationDetail), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn get_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<OperationDetail>, ApiProblem> {
    let id: OperationId = key.parse().map_err(|_| CommandError::not_found("operation", &key))?;
    let mut reader = state.engine.store().read().await?;
    let record = reader.operation(id).await?;
    caller.must_see(record.project, "operation", id)?;
    let steps = reader.steps_of(id).await?.into_iter().map(shown::step).collect();
    Ok(Json(OperationDetail { operation: shown::operation(record), steps }))
}

/// Asks an operation to end; what runs is told, what has not begun never will.
#[utoipa::path(
    post, path = "/api/v1/operations/{id}/cancel", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Operation), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn cancel_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Operation>, ApiProblem> {
    let id: OperationId = key.parse().map_err(|_| CommandError::not_found("operation", &key))?;
    Ok(Json(shown::operation(operation::cancel(&state.engine, &caller, id).await?)))
}
