//! Task-signing keys.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use gpuaas_api_types::{List, SigningKey};
use gpuaas_engine::commands::keys::{self, SigningKeyView};

use crate::{
    auth::Authenticated,
    convert,
    declaration::declare,
    page::{DryRunParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_signing_keys: reads(PlatformRead, "keys list"), [] }

/// Lists every present and former signing key, oldest first.
#[utoipa::path(get, path = "/api/v1/signing-keys", tag = "platform", security(("token" = [])),
    responses((status = 200, body = List<SigningKey>)))]
pub(crate) async fn list_signing_keys(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<List<SigningKey>>, ApiProblem> {
    let keys = keys::list(&state.engine, &caller).await?;
    Ok(Json(List::new(keys.into_iter().map(convert::signing_key).collect(), None)))
}

declare! {
    rotate_signing_keys: changes(KeysWrite, "keys rotate", KeysRotate, SigningKeyStateChanged),
    [StateConflict, ReplicaVersionsDiffer]
}

/// Starts the rotation of the task-signing key.
///
/// The new key is first `staged`, then `active`. The old one is retired once the last task that it signed has ended.
#[utoipa::path(
    post, path = "/api/v1/signing-keys/rotate", tag = "platform", security(("token" = [])),
    responses((status = 202, body = SigningKey))
)]
pub(crate) async fn rotate_signing_keys(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<(StatusCode, Json<SigningKey>), ApiProblem> {
    let key = keys::rotate(&state.engine, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(convert::signing_key(SigningKeyView { key, waiting_for: None }))))
}

declare! { revoke_signing_key: changes(KeysWrite, "keys revoke", KeyRevoke, SigningKeyStateChanged), [NotFound] }

/// Revokes a signing key immediately.
///
/// Nodes accept no more tasks that it signed. If it is the active key, another key becomes active at the same moment.
/// With `dry_run`, nothing changes, and the response is what it would be.
#[utoipa::path(
    post, path = "/api/v1/signing-keys/{key}/revoke", tag = "platform", security(("token" = [])), params(("key" = String, Path, description = "key id"), DryRunParams),
    responses((status = 200, body = SigningKey))
)]
pub(crate) async fn revoke_signing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
) -> Result<Json<SigningKey>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let key = keys::revoke(&state.engine, &caller, &key).await?;
    Ok(Json(convert::signing_key(SigningKeyView { key, waiting_for: None })))
}
