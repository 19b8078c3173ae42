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
    page::{Params, ProjectDryRunParams, ProjectPageParams},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_members: reads(ProjectRead, "workload members"), [NotFound] }

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
    Ok(Json(List::new(named(&mut reader, page).await?, next_cursor)))
}

declare! {
    add_members: changes(WorkloadsWrite, "workload add-member", WorkloadAddMember, OperationStarted),
    [NotFound, FieldInvalid, OperationInProgress, StateConflict, PreconditionFailed, PlacementInvalid, AllocationRepeated,
        AllocationUnknown, AllocationInactive, AllocationUnreachable, AllocationBlocked, AllocationInUse, TooManyMembers, AgentTooOld]
}

/// Adds members to a running workload.
///
/// With `dry_run`, the response is 200 with the plan.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])), request_body = AddMembers,
    params(("workload" = String, Path, description = "name or id"), ProjectDryRunParams),
    responses(
        (status = 202, body = Started), (status = 200, body = gpuaas_api_types::Preview, description = "the plan")
    )
)]
pub(crate) async fn add_members(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectDryRunParams>,
    IfMatch(seen): IfMatch,
    Body(ask): Body<AddMembers>,
) -> Result<Response, ApiProblem> {
    let id = find_of_app(&state, &caller, params.project.as_deref(), &key, &ask.app).await?;
    if params.dry_run {
        let drafted = workload::preview_add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
        return Ok(Json(preview(&state, &ask.app, drafted).await?).into_response());
    }
    let accepted = workload::add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
    let answer: (StatusCode, Json<Started>) = started(&state, accepted).await?;
    Ok(answer.into_response())
}
