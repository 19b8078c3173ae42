//! The sealing key, which encrypts secrets in the database.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::SealingKey;
use gpuaas_engine::commands::sealing_key;

use crate::{auth::Authenticated, convert, problem::ApiProblem, state::ApiState};

/// Returns the public id of the sealing key in use, and the progress of its rotation.
#[utoipa::path(get, path = "/api/v1/sealing-key", tag = "platform", security(("token" = [])), extensions(
        ("x-permission" = json!("platform.read")), ("x-cli" = json!("keys show")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!([]))
    ),
    responses((status = 200, body = SealingKey)))]
pub(crate) async fn get_sealing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<SealingKey>, ApiProblem> {
    Ok(Json(convert::sealing_key(sealing_key::show(&state.engine, &caller).await?)))
}

/// Puts the next sealing key into use.
///
/// Every replica must have loaded it before. Rows that are encrypted with the previous key are gradually encrypted again, and stay
/// readable.
#[utoipa::path(
    post, path = "/api/v1/sealing-key/rotate", tag = "platform", security(("token" = [])),
    extensions(
        ("x-permission" = json!("keys.write")), ("x-cli" = json!("keys rotate")), ("x-audit" = json!("sealing_key.rotate")),
        ("x-event" = json!("sealing_key.state_changed")),
        ("x-errors" = json!(["state_conflict", "replica_versions_differ", "sealing_key_not_on_all_replicas"]))
    ),
    responses((status = 202, body = SealingKey))
)]
pub(crate) async fn rotate_sealing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<(StatusCode, Json<SealingKey>), ApiProblem> {
    let key = sealing_key::rotate(&state.engine, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(convert::sealing_key(key))))
}
