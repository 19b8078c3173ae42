//! Exchange of the first administrator's one-time token. This route accepts no other token, and no other route accepts that one.

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use gpuaas_api_types::{Bootstrap, CreatedToken};
use gpuaas_engine::{
    check_line,
    commands::bootstrap::{NewAdmin, exchange},
};
use gpuaas_model::{AuditAction, EventKind, Line};

use crate::{
    auth,
    body::Body,
    convert,
    declaration::{Declaration, Entry, declare},
    peer::PeerAddress,
    problem::ApiProblem,
    state::ApiState,
};

declare! {
    bootstrap: Declaration::exchanges(
        "the one-time token is the credential", Entry::Is("bootstrap"), AuditAction::AdminBootstrap, EventKind::TokenCreated,
    ),
    [OneTimeTokenUsed, Forbidden, FieldInvalid, NotFound]
}

/// Exchanges the one-time token of the first administrator for a platform admin's token.
///
/// Only this response contains the new token's secret.
#[utoipa::path(
    post, path = "/api/v1/bootstrap", tag = "access", security(("token" = [])), request_body = Bootstrap,
    responses((status = 201, body = CreatedToken))
)]
pub(crate) async fn bootstrap(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Body(ask): Body<Bootstrap>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiProblem> {
    check_line(Line::TOKEN_NAME, &ask.name, "name")?;
    let caller = auth::one_time_caller(&headers, from.map(|Extension(from)| from), &state).await?;
    let new = NewAdmin { name: ask.name, ttl_seconds: ask.ttl_seconds };
    let (record, secret) = exchange(&state.engine, &caller, new).await?;
    state.limits.record_valid(&record.sha256);
    let created = CreatedToken { token: convert::token(record, None), secret: secret.expose().to_owned() };
    Ok((StatusCode::CREATED, Json(created)))
}
