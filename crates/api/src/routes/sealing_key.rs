//! The sealing key, which encrypts secrets in the database.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::SealingKey;
use gpuaas_engine::commands::sealing_key;

use crate::{auth::Authenticated, convert, declaration::declare, problem::ApiProblem, state::ApiState};

declare! { get_sealing_key: reads(PlatformRead, "keys show"), [] }

/// Returns the public id of the sealing key in use, and the progress of its rotation.
#[utoipa::path(get, path = "/api/v1/sealing-key", tag = "platform", security(("token" = [])),
    responses((status = 200, body = SealingKey)))]
pub(crate) async fn get_sealing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<SealingKey>, ApiProblem> {
    Ok(Json(convert::sealing_key(sealing_key::show(&state.engine, &caller).await?)))
}

declare! {
    rotate_sealing_key: changes(KeysWrite, "keys rotate", SealingKeyRotate, SealingKeyStateChanged),
    [StateConflict, ReplicaVersionsDiffer, SealingKeyNotOnAllReplicas]
}

/// Puts the next sealing key into use.
///
/// Every replica must have loaded it before. Rows that are encrypted with the previous key are gradually encrypted again, and stay
/// readable.
#[utoipa::path(
    post, path = "/api/v1/sealing-key/rotate", tag = "platform", security(("token" = [])),
    responses((status = 202, body = SealingKey))
)]
pub(crate) async fn rotate_sealing_key(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<(StatusCode, Json<SealingKey>), ApiProblem> {
    let key = sealing_key::rotate(&state.engine, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(convert::sealing_key(key))))
}
