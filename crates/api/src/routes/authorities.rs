//! Certificate authorities.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::{Authority, ForceAuthority, List};
use gpuaas_engine::commands::{
    authorities::{self, AuthorityView, ExpectedAuthority},
    node::Forced,
};
use gpuaas_model::{Code, KeyState};
use gpuaas_trust::is_sha256_hex;

use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    page::{DryRunParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_authorities: reads(PlatformRead, "keys list"), [] }

/// Lists every present and former authority, oldest first.
#[utoipa::path(get, path = "/api/v1/authorities", tag = "platform", security(("token" = [])),
    responses((status = 200, body = List<Authority>)))]
pub(crate) async fn list_authorities(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<List<Authority>>, ApiProblem> {
    let authorities = authorities::list(&state.engine, &caller).await?;
    Ok(Json(List::new(authorities.into_iter().map(convert::authority).collect(), None)))
}

declare! {
    rotate_authority: changes(KeysWrite, "keys rotate", AuthorityRotate, AuthorityStateChanged),
    [StateConflict, ReplicaVersionsDiffer]
}

/// Starts the rotation of the certificate authority.
///
/// The new authority is `staged` until every connected node trusts it, then `active`. The old one is retired once every node has a
/// certificate of the new one. No connection is interrupted.
#[utoipa::path(
    post, path = "/api/v1/authorities/rotate", tag = "platform", security(("token" = [])),
    responses((status = 202, body = Authority))
)]
pub(crate) async fn rotate_authority(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<(StatusCode, Json<Authority>), ApiProblem> {
    let authority = authorities::rotate(&state.engine, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(convert::authority(AuthorityView { authority, waiting_for: None }))))
}

declare! {
    force_authority: changes(KeysWrite, "keys rotate", AuthorityForce, AuthorityStateChanged),
    [FieldInvalid, StateConflict]
}

/// Takes the next step of the rotation without the nodes that delay it.
///
/// A node that is left behind when the old authority is retired must be enrolled again. With `dry_run`, nothing changes, and the response is what it would be.
#[utoipa::path(
    post, path = "/api/v1/authorities/force", tag = "platform", security(("token" = [])), request_body = ForceAuthority,
    params(DryRunParams),
    responses((status = 200, body = Authority))
)]
pub(crate) async fn force_authority(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<DryRunParams>,
    Body(ask): Body<ForceAuthority>,
) -> Result<Json<Authority>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let invalid = || ApiProblem::new(Code::FieldInvalid, "the state must be staged or grace");
    let state_of = match ask.state.as_str() {
        "staged" => KeyState::Staged,
        "grace" => KeyState::Grace,
        _ => return Err(invalid().about("state")),
    };
    if !is_sha256_hex(&ask.authority) {
        let detail = "an authority's id has 64 hexadecimal digits";
        return Err(ApiProblem::new(Code::FieldInvalid, detail).about("authority"));
    }
    let awaited = ExpectedAuthority { authority: ask.authority, state: state_of };
    let authority = authorities::force(&state.engine, &caller, &awaited, &Forced { reason: ask.reason }).await?;
    Ok(Json(convert::authority(AuthorityView { authority, waiting_for: None })))
}
