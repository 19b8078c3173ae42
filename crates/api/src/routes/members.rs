//! Members of workloads.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{AddMembers, List, Member, Started};
use gpuaas_engine::commands::workload;

use super::{
    member_names::named,
    workloads::{find, find_of_app, preview, started},
};
use crate::{
    auth::Authenticated,
    body::Body,
    declaration::declare,
    etag::IfMatch,
    page::{Params, ProjectPageParams, ProjectPlanParams},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_members: reads(WorkloadsRead, "workload members"), [NotFound] }

/// Lists the members of a workload, including removed ones.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectPageParams),
    responses((status = 200, body = List<Member>))
)]
pub(crate) async fn list_members(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectPageParams>,
) -> Result<Json<List<Member>>, ApiProblem> {
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let mut reader = state.engine.store().read().await?;
    let (page, next_cursor) =
        params.page_params().page_of(reader.members_of(id).await?, |member| member.id.to_string());
    Ok(Json(List::new(named(&state, &mut reader, id, page).await?, next_cursor)))
}

declare! {
    add_members: changes(WorkloadsWrite, "workload add-member", WorkloadAddMember, OperationStarted),
    [NotFound, FieldInvalid, OperationInProgress, StateConflict, PreconditionFailed, PlanChanged, PlacementInvalid, AllocationRepeated,
        AllocationUnknown, AllocationInactive, AllocationUnreachable, AllocationBlocked, AllocationInUse, TooManyMembers, AgentTooOld]
}

/// Adds members to a running workload.
///
/// With `dry_run`, the response is 200 with the plan. With `plan_digest`, only the plan with this digest runs.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])), request_body = AddMembers,
    params(("workload" = String, Path, description = "name or id"), ProjectPlanParams),
    responses(
        (status = 202, body = Started), (status = 200, body = gpuaas_api_types::Preview, description = "the plan")
    )
)]
pub(crate) async fn add_members(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectPlanParams>,
    IfMatch(seen): IfMatch,
    Body(ask): Body<AddMembers>,
) -> Result<Response, ApiProblem> {
    let caller = params.caller(caller)?;
    let id = find_of_app(&state, &caller, params.project.as_deref(), &key, &ask.app).await?;
    if params.dry_run {
        let drafted = workload::preview_add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
        return Ok(Json(preview(&state, drafted)?).into_response());
    }
    let accepted = workload::add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
    let answer: (StatusCode, Json<Started>) = started(&state, accepted).await?;
    Ok(answer.into_response())
}
