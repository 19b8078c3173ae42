//! Operations and their steps.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{List, Operation, OperationDetail, Preview, StartOperation, Started};
use gpuaas_engine::{
    CommandError,
    commands::{operation, workload},
};
use gpuaas_model::Code;
use gpuaas_planner::{OperationRequest, lifecycle};
use gpuaas_store::{IdKind, OperationFilter};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    residue::residue,
    workloads::{find_of_app, preview, started},
};
use crate::{
    auth::Authenticated,
    body::Body,
    declaration::declare,
    etag::IfMatch,
    json::bounded,
    lookup,
    page::{PageParams, Params, ProjectPlanParams, parsed},
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

declare! { list_operations: reads(WorkloadsRead, "operation list"), [NotFound, QueryInvalid] }

/// Lists operations that the caller may see, oldest first.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "operations", security(("token" = [])), params(OperationParams),
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
        None => lookup::only_visible(&caller)?,
    };
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let operation_state = parsed(params.state.as_deref(), "state")?;
    let filter = OperationFilter { project, workload, state: operation_state, page: page.page() };
    let operations = reader.operations(&filter).await?;
    let next_cursor = page.next_cursor(&operations, |operation| operation.id.to_string());
    Ok(Json(List::new(views::operations(&mut reader, operations).await?, next_cursor)))
}

declare! { get_operation: reads(WorkloadsRead, "operation show"), [NotFound] }

/// Returns an operation with its steps.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = OperationDetail))
)]
pub(crate) async fn get_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<OperationDetail>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let id = lookup::id(&mut reader, &caller, IdKind::Operation, &key).await?;
    let record = reader.operation(id).await?;
    caller.require_visible_workload(record.project, record.workload, "operation", id)?;
    let steps = reader.steps_of(id).await?;
    let residue = residue(&mut reader, &record, &steps).await?;
    let steps = views::steps(steps, record.created_at);
    Ok(Json(OperationDetail { operation: views::operation(&mut reader, record).await?, steps, residue }))
}

/// A kind that is no operation: clients ask for it, and the refusal says what to use instead.
const RESTART: &str = "restart";

declare! {
    start_operation: changes(WorkloadsWrite, "operation start", OperationStart, OperationStarted),
    [NotFound, FieldInvalid, OperationInProgress, StateConflict, PreconditionFailed, NothingToDo, MemberUnknown, LastServer, LastAgent,
        RestartUnsupported, PlacementInvalid, AllocationRepeated, AllocationUnknown, AllocationInactive, AllocationUnreachable,
        AllocationBlocked, AllocationInUse, TooManyMembers, AgentTooOld, PlanChanged]
}

/// Starts an operation with parameters on a workload.
///
/// `operations` of the app lists the kinds and the schemas of their parameters. Deployment, additional members and decommission have
/// requests of their own. With `dry_run`, the response is 200 with the plan. With `plan_digest`, only the plan with this digest runs.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/operations", tag = "operations", security(("token" = [])), request_body = StartOperation,
    params(("workload" = String, Path, description = "name or id"), ProjectPlanParams),
    responses(
        (status = 202, body = Started), (status = 200, body = Preview, description = "the plan")
    )
)]
pub(crate) async fn start_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectPlanParams>,
    IfMatch(seen): IfMatch,
    Body(ask): Body<StartOperation>,
) -> Result<Response, ApiProblem> {
    let caller = params.caller(caller)?;
    let id = find_of_app(&state, &caller, params.project.as_deref(), &key, &ask.app).await?;
    if ask.kind == RESTART {
        let name = state.engine.store().read().await?.workload(id).await?.name;
        return Err(CommandError::from_reason(lifecycle::against_restart(&name)).into());
    }
    let kind = ask.kind.parse().map_err(|_| {
        ApiProblem::new(Code::FieldInvalid, format!("there is no operation {:?}", bounded(&ask.kind)))
            .about("kind")
            .then(format!("see what the app offers: gpuaas app show {}", ask.app))
    })?;
    let request = OperationRequest { kind, parameters: ask.parameters };
    if params.dry_run {
        let drafted = workload::preview_operation(&state.engine, &caller, id, &seen, &request).await?;
        return Ok(Json(preview(&state, drafted)?).into_response());
    }
    let accepted = workload::start_operation(&state.engine, &caller, id, &seen, request).await?;
    Ok(started(&state, accepted).await?.into_response())
}

declare! {
    cancel_operation: changes(OperationsControl, "operation cancel", OperationCancel, OperationCancelRequested),
    [NotFound, StateConflict]
}

/// Requests the cancellation of an operation.
///
/// Running steps are asked to stop. Steps that have not begun never run.
#[utoipa::path(
    post, path = "/api/v1/operations/{id}/cancel", tag = "operations", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Operation))
)]
pub(crate) async fn cancel_operation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Operation>, ApiProblem> {
    let id = lookup::id(&mut state.engine.store().read_once().await?, &caller, IdKind::Operation, &key).await?;
    let cancelled = operation::cancel(&state.engine, &caller, id).await?;
    let mut reader = state.engine.store().read().await?;
    Ok(Json(views::operation(&mut reader, cancelled).await?))
}
