//! The keys that sign tasks.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use gpuaas_api_types::{List, SigningKey};
use gpuaas_engine::commands::keys::{self, SigningKeyView};

use crate::{auth::Authenticated, convert, problem::ApiProblem, state::ApiState};

/// Every key that signs or signed tasks, oldest first.
#[utoipa::path(get, path = "/api/v1/signing-keys", tag = "platform", security(("token" = [])), extensions(
        ("x-permission" = json!("platform.read")), ("x-cli" = json!("keys list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!([]))
    ),
    responses((status = 200, body = List<SigningKey>)))]
pub(crate) async fn list_signing_keys(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<List<SigningKey>>, ApiProblem> {
    let keys = keys::list(&state.engine, &caller).await?;
    Ok(Json(List::new(keys.into_iter().map(convert::signing_key).collect(), None)))
}

/// Makes a new key take the place of the one that signs: staged, active, and the old one retired once its last task has ended.
#[utoipa::path(
    post, path = "/api/v1/signing-keys/rotate", tag = "platform", security(("token" = [])),
    extensions(
        ("x-permission" = json!("keys.write")), ("x-cli" = json!("keys rotate")), ("x-audit" = json!("keys.rotate")),
        ("x-event" = json!("signing_key.state_changed")), ("x-errors" = json!(["state_conflict", "replica_versions_differ"]))
    ),
    responses((status = 202, body = SigningKey))
)]
pub(crate) async fn rotate_signing_keys(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<(StatusCode, Json<SigningKey>), ApiProblem> {
    let key = keys::rotate(&state.engine, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(convert::signing_key(SigningKeyView { key, waiting_for: None }))))
}

/// Ends a key at once: nodes take no task of it any more. Where it is the one that signs, another signs from the same moment.
#[utoipa::path(
    post, path = "/api/v1/signing-keys/{key}/revoke", tag = "platform", security(("token" = [])), params(("key" = String, Path, description = "its id")),
    extensions(
        ("x-permission" = json!("keys.write")), ("x-cli" = json!("keys revoke")), ("x-audit" = json!("key.revoke")),
        ("x-event" = json!("signing_key.state_changed")), ("x-errors" = json!(["not_found"]))
    ),
    responses((status = 200, body = SigningKey))
)]
pub(crate) async fn revoke_signing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<SigningKey>, ApiProblem> {
    let key = keys::revoke(&state.engine, &caller, &key).await?;
    Ok(Json(convert::signing_key(SigningKeyView { key, waiting_for: None })))
}
