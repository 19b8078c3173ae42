//! Who asks: a bearer token, looked up by its digest on every request, so that a revoked one is refused at once.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use gpuaas_engine::Caller;
use gpuaas_model::{Code, Principal};

use crate::{correlation, problem::ApiProblem, state::ApiState};

/// An authenticated caller. A handler that takes one refuses everybody else.
pub(crate) struct Authenticated(pub(crate) Caller);

/// An authenticated platform admin.
pub(crate) struct PlatformAdmin(pub(crate) Caller);

impl FromRequestParts<ApiState> for Authenticated {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiProblem> {
        let principal = principal(&parts.headers, state).await?;
        Ok(Self(Caller { principal, correlation: correlation::current_id(state) }))
    }
}

/// Whose token the request carries.
pub(crate) async fn principal(headers: &HeaderMap, state: &ApiState) -> Result<Principal, ApiProblem> {
    let refuse =
        |why: &str| ApiProblem::new(Code::Unauthenticated, why).then("send a valid token as `Authorization: Bearer …`");
    let header = headers.get(header::AUTHORIZATION).ok_or_else(|| refuse("no token was sent"))?;
    let secret = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
    let secret = secret.ok_or_else(|| refuse("the Authorization header holds no bearer token"))?;
    let sha256 = gpuaas_trust::sha256_hex(secret.trim().as_bytes());
    let token = state.engine.store().read().await?.token_by_sha256(&sha256).await?;
    let now = state.engine.ports().clock.now();
    let token = token.ok_or_else(|| refuse("this token is unknown"))?;
    if token.revoked_at.is_some() {
        return Err(refuse("this token was revoked"));
    }
    if token.expires_at.is_some_and(|at| at <= now) {
        return Err(refuse("this token has expired"));
    }
    Ok(Principal { token: token.id, name: token.name, role: token.role, project: token.project })
}

impl FromRequestParts<ApiState> for PlatformAdmin {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiProblem> {
        let Authenticated(caller) = Authenticated::from_request_parts(parts, state).await?;
        caller.must_be_platform_admin()?;
        Ok(Self(caller))
    }
}
