//! Access to a workload's cluster.

use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{AccessAnswer, AccessGrant, AccessGranted, RequestAccess};
use gpuaas_engine::commands::access::{self, DeliveryRequest};
use gpuaas_store::IdKind;

use super::workloads::{ProjectParams, find};
use crate::{
    auth::Authenticated,
    body::Body,
    declaration::declare,
    lookup,
    page::{DryRunParams, Params},
    problem::ApiProblem,
    state::ApiState,
    views,
};

declare! { get_access: reads(ProjectRead, "workload access"), [NotFound] }

/// Returns the endpoint of the workload's cluster, the available kinds of credentials, and the delivered ones.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/access", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 200, body = AccessAnswer))
)]
pub(crate) async fn get_access(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
) -> Result<Json<AccessAnswer>, ApiProblem> {
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    Ok(Json(views::access(access::describe(&state.engine, &caller, id).await?)))
}

declare! {
    deliver_kubeconfig: changes(AccessView, "workload kubeconfig", AccessDeliver, AccessDelivered),
    [NotFound, AccessKindUnknown, FieldInvalid, ClusterNotReady, StateConflict, ClusterUnreachable]
}

/// Delivers a credential for the workload's cluster.
///
/// Only this response contains the credential.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/kubeconfig", tag = "workloads", security(("token" = [])), request_body = RequestAccess,
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 201, body = AccessGranted))
)]
pub(crate) async fn deliver_kubeconfig(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
    Body(ask): Body<RequestAccess>,
) -> Result<Response, ApiProblem> {
    let ask = DeliveryRequest { kind: ask.kind, role: ask.role, ttl_seconds: ask.ttl_seconds, reason: ask.reason };
    ask.check_reason()?;
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let delivered = access::deliver(&state.engine, &caller, id, ask).await?;
    let granted = AccessGranted {
        grant: delivered.grant.id.to_string(),
        kind: delivered.grant.kind,
        role: delivered.grant.role,
        expires_at: delivered.grant.expires_at.to_string(),
        kubeconfig: delivered.kubeconfig.to_string(),
    };
    // Caches must not store a credential.
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(granted)).into_response())
}

declare! {
    revoke_access: changes(AccessTake, "workload revoke-access", AccessRevoke, AccessRevoked),
    [NotFound, FieldInvalid, ClusterNotReady, StateConflict, ClusterUnreachable]
}

/// Revokes a delivered credential.
///
/// With `dry_run`, nothing changes, and the cluster is not asked.
#[utoipa::path(
    delete, path = "/api/v1/access-grants/{id}", tag = "workloads", security(("token" = [])),
    params(("id" = String, Path), DryRunParams),
    responses((status = 200, body = AccessGrant))
)]
pub(crate) async fn revoke_access(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
) -> Result<Json<AccessGrant>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = lookup::id(&mut state.engine.store().read_once().await?, &caller, IdKind::AccessGrant, &key).await?;
    Ok(Json(views::grant(access::revoke(&state.engine, &caller, id).await?)))
}
