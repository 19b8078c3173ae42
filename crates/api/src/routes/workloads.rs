//! Workloads.

use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{
    AccessGranted, AddMembers, AskAccess, Deploy, List, Problem, Started, Workload, WorkloadDetail,
};
use gpuaas_engine::{
    Caller,
    commands::{
        access::{self, AccessAsk},
        workload::{self, Accepted},
    },
};
use gpuaas_model::WorkloadId;
use gpuaas_store::{Reader, WorkloadFilter, WorkloadRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{nodes::parsed, projects::name};
use crate::{
    auth::Authenticated,
    body::Body,
    lookup,
    page::{PageParams, Params},
    problem::ApiProblem,
    shown,
    state::ApiState,
};

/// Which project a name is meant in.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectParams {
    /// By name or id; the caller's own when absent.
    project: Option<String>,
}

/// Which workloads.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadParams {
    /// Of this project, by name or id.
    project: Option<String>,
    /// In this lifecycle.
    lifecycle: Option<String>,
    /// With this health.
    health: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// At most so many, up to 1,000.
    limit: Option<u32>,
}

/// Workloads that the caller sees.
#[utoipa::path(
    get, path = "/api/v1/workloads", tag = "workloads", security(("token" = [])), params(WorkloadParams),
    responses((status = 200, body = List<Workload>), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn list_workloads(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<WorkloadParams>,
) -> Result<Json<List<Workload>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let project = match &params.project {
        Some(_) => Some(lookup::caller_project(&mut reader, &caller, params.project.as_deref()).await?),
        None => caller.principal.project,
    };
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter = WorkloadFilter {
        project,
        lifecycle: parsed(params.lifecycle.as_deref(), "lifecycle")?,
        health: parsed(params.health.as_deref(), "health")?,
        app: None,
        page: page.page(),
    };
    let records = reader.workloads(&filter).await?;
    let next_cursor = page.next_cursor(&records, |record| record.id.to_string());
    let mut items = Vec::new();
    for record in records {
        items.push(shown::workload(&mut reader, record).await?);
    }
    Ok(Json(List { items, next_cursor }))
}

/// Deploys an app, or refuses it with every reason and nothing touched.
#[utoipa::path(
    post, path = "/api/v1/workloads", tag = "workloads", security(("token" = [])), request_body = Deploy,
    responses((status = 202, body = Started), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn deploy_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<Deploy>,
) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let project = {
        let mut reader = state.engine.store().read().await?;
        lookup::caller_project(&mut reader, &caller, ask.project.as_deref()).await?
    };
    let deploy = workload::Deploy {
        project,
        app: ask.app,
        version: ask.version,
        name: name(&ask.name)?,
        intent: ask.placement,
        config: ask.config,
    };
    started(&state, workload::deploy(&state.engine, &caller, deploy).await?).await
}

/// A workload with its members.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 200, body = WorkloadDetail), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn get_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
) -> Result<Json<WorkloadDetail>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let record = lookup::workload(&mut reader, &caller, params.project.as_deref(), &key).await?;
    Ok(Json(detail(&mut reader, record).await?))
}

/// Adds members to a running workload.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/members", tag = "workloads", security(("token" = [])), request_body = AddMembers,
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 202, body = Started), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn add_members(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
    Body(ask): Body<AddMembers>,
) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let id = find(&state, &caller, &params, &key).await?;
    started(&state, workload::add_member(&state.engine, &caller, id, ask.placement).await?).await
}

/// Removes a workload from all of its nodes.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/decommission", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 202, body = Started), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn decommission_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let id = find(&state, &caller, &params, &key).await?;
    started(&state, workload::decommission(&state.engine, &caller, id).await?).await
}

/// Tries again what needs attention.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/resume", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 202, body = Started), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn resume_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let id = find(&state, &caller, &params, &key).await?;
    started(&state, workload::resume(&state.engine, &caller, id).await?).await
}

/// Delivers a credential for the workload's cluster; it is in the answer and nowhere else.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/kubeconfig", tag = "workloads", security(("token" = [])), request_body = AskAccess,
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 201, body = AccessGranted), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn deliver_kubeconfig(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
    Body(ask): Body<AskAccess>,
) -> Result<Response, ApiProblem> {
    let id = find(&state, &caller, &params, &key).await?;
    let ask = AccessAsk { kind: ask.kind, role: ask.role, ttl_seconds: ask.ttl_seconds, reason: ask.reason };
    let delivered = access::deliver(&state.engine, &caller, id, ask).await?;
    let granted = AccessGranted {
        grant: delivered.grant.id.to_string(),
        kind: delivered.grant.kind,
        role: delivered.grant.role,
        expires_at: delivered.grant.expires_at.to_string(),
        kubeconfig: delivered.kubeconfig.to_string(),
    };
    // A credential is nothing for a cache.
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(granted)).into_response())
}

async fn find(state: &ApiState, caller: &Caller, params: &ProjectParams, key: &str) -> Result<WorkloadId, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    Ok(lookup::workload(&mut reader, caller, params.project.as_deref(), key).await?.id)
}

async fn started(state: &ApiState, accepted: Accepted) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let workload = shown::workload(&mut reader, accepted.workload).await?;
    Ok((StatusCode::ACCEPTED, Json(Started { workload, operation: shown::operation(accepted.operation) })))
}

async fn detail(reader: &mut Reader, record: WorkloadRecord) -> Result<WorkloadDetail, ApiProblem> {
    let mut members = Vec::new();
    for member in reader.members_of(record.id).await? {
        let node = reader.node(member.node).await?;
        members.push(shown::member(member, &node));
    }
    let operation = reader.newest_operation(record.id).await?.map(|operation| operation.id.to_string());
    Ok(WorkloadDetail { workload: shown::workload(reader, record).await?, members, operation })
}
