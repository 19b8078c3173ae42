//! Members of workloads.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{AddMembers, List, Member, Started};
use gpuaas_engine::commands::workload;
use gpuaas_model::WorkloadId;
use gpuaas_store::{MemberRecord, Reader, StoreError};

use super::workloads::{find, preview, started};
use crate::{
    auth::Authenticated,
    body::Body,
    etag::IfMatch,
    page::{Params, ProjectDryRunParams, ProjectPageParams},
    problem::ApiProblem,
    state::ApiState,
    views,
};

/// Lists the members of a workload, including removed ones.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectPageParams),
    extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("workload members")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["not_found"]))
    ),
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

/// Adds members to a running workload.
///
/// With `dry_run`, the response is 200 with the plan.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])), request_body = AddMembers,
    params(("workload" = String, Path, description = "name or id"), ProjectDryRunParams),
    extensions(
        ("x-permission" = json!("workloads.write")), ("x-cli" = json!("workload add-member")), ("x-audit" = json!("workload.add_member")), ("x-event" = json!("operation.started")),
        ("x-errors" = json!(["not_found", "operation_in_progress", "state_conflict", "precondition_failed", "placement_invalid", "allocation_repeated", "allocation_unknown", "allocation_inactive", "allocation_unreachable", "allocation_in_use", "too_many_members", "agent_too_old"]))
    ),
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
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    if params.dry_run {
        let app = state.engine.store().read().await?.workload(id).await?.app;
        let drafted = workload::preview_add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
        return Ok(Json(preview(&state, &app, drafted).await?).into_response());
    }
    let accepted = workload::add_member(&state.engine, &caller, id, &seen, ask.placement).await?;
    let answer: (StatusCode, Json<Started>) = started(&state, accepted).await?;
    Ok(answer.into_response())
}

pub(super) async fn members(reader: &mut Reader, id: WorkloadId) -> Result<Vec<Member>, ApiProblem> {
    let members = reader.members_of(id).await?;
    named(reader, members).await
}

/// Converts members, with the names of their nodes.
async fn named(reader: &mut Reader, records: Vec<MemberRecord>) -> Result<Vec<Member>, ApiProblem> {
    let names = reader.node_names(records.iter().map(|member| member.node)).await?;
    let shown = records.into_iter().map(|member| match names.get(&member.node) {
        Some(name) => Ok(views::member(member, name)),
        None => Err(StoreError::NotFound { what: "node", id: member.node.to_string() }),
    });
    Ok(shown.collect::<Result<_, _>>()?)
}
