//! Authentication by bearer token, and authorization. Every request looks its token up by digest, so a revoked token is refused
//! immediately.

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::{
    Caller, Keys,
    commands::{bootstrap, token},
};
use gpuaas_model::{Code, Permission, Principal, Timestamp};
use gpuaas_store::TokenRecord;

use crate::{
    correlation,
    declared::Handler,
    peer::{self, PeerAddress},
    problem::ApiProblem,
    shares::Activity,
    state::ApiState,
};

/// An authenticated caller. A handler with this extractor refuses unauthenticated requests.
pub(crate) struct Authenticated(pub(crate) Caller);

impl FromRequestParts<ApiState> for Authenticated {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiProblem> {
        // The permission check already looked the caller up.
        let principal = match parts.extensions.get::<Principal>() {
            Some(known) => known.clone(),
            None => principal(&parts.headers, parts.extensions.get().copied(), state).await?,
        };
        Ok(Self(Caller {
            principal,
            correlation: correlation::current_id(&state.engine),
            is_dry_run: false,
            expected_plan: None,
        }))
    }
}

/// Returns the holder of the request's token. `from` is the peer's address.
pub(crate) async fn principal(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Principal, ApiProblem> {
    let (token, now) = look_up(headers, from, state).await?;
    check_validity(&token, now)?;
    Ok(Principal {
        token: token.id,
        name: token.name,
        role: token.role,
        project: token.project,
        service_account: token.service_account,
        workload: token.workload,
    })
}

/// Returns the caller of a request with a one-time token; refuses every other token. `from` is the peer's address.
pub(crate) async fn one_time_caller(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Caller, ApiProblem> {
    let (token, now) = look_up(headers, from, state).await?;
    let principal = bootstrap::holder(&token, now)?;
    state.limits.count_caller(&principal)?;
    Ok(Caller {
        principal,
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
    })
}

/// Refuses revoked and expired tokens, tokens without an expiry, and one-time tokens, which are only good for their exchange.
fn check_validity(token: &TokenRecord, now: Timestamp) -> Result<(), ApiProblem> {
    if token.revoked_at.is_some() {
        return Err(refuse("this token was revoked"));
    }
    match token.expires_at {
        Some(at) if at > now => {}
        Some(_) => return Err(refuse("this token has expired")),
        None => return Err(refuse("this token has no expiry, which every token needs")),
    }
    if token.is_bootstrap {
        return Err(ApiProblem::new(
            Code::OneTimeTokenOnly,
            "this one-time token can only be exchanged for another token",
        )
        .then("exchange it: gpuaas bootstrap --token-file FILE --name NAME"));
    }
    Ok(())
}

/// Returns the request's token, valid or not, and the time of the look-up.
async fn look_up(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<(TokenRecord, Timestamp), ApiProblem> {
    let sha256 = digest_of_token(headers, state.engine.keys())?;
    let permit = state.limits.lookup_permit(from, &sha256).await?;
    let token = state.engine.store().read_once().await?.token_by_sha256(&sha256).await?;
    drop(permit);
    let now = state.engine.ports().clock.now();
    let is_valid =
        token.as_ref().is_some_and(|token| token.revoked_at.is_none() && token.expires_at.is_some_and(|at| at > now));
    state.limits.record_lookup(from, &sha256, is_valid);
    Ok((token.ok_or_else(|| refuse("this token is unknown"))?, now))
}

/// Returns the digest of the request's token. Refuses a token that this control plane did not issue, without a look-up or a penalty.
fn digest_of_token(headers: &HeaderMap, keys: &Keys) -> Result<String, ApiProblem> {
    let header = headers.get(header::AUTHORIZATION).ok_or_else(|| refuse("no token was sent"))?;
    let (scheme, secret) = header.to_str().ok().and_then(|header| header.split_once(' ')).unwrap_or_default();
    // RFC 9110: the scheme name is case-insensitive.
    let secret = Some(secret).filter(|_| scheme.eq_ignore_ascii_case("Bearer"));
    let secret = secret.ok_or_else(|| refuse("the Authorization header contains no bearer token"))?.trim();
    if !token::is_issued(keys, secret) {
        let detail = "this control plane did not issue the token, or the token is incomplete";
        return Err(ApiProblem::new(Code::Unauthenticated, detail)
            .then("copy the whole token again, or ask an admin of the project or the platform for a new one"));
    }
    Ok(gpuaas_trust::sha256_hex(secret.as_bytes()))
}

fn refuse(why: &str) -> ApiProblem {
    let next = "set a valid token in GPUAAS_TOKEN or in the context (gpuaas context set NAME --token-file FILE); \
                requests send it as `Authorization: Bearer …`";
    ApiProblem::new(Code::Unauthenticated, why).then(next)
}

/// Counts a request against its address, unless a token will be charged for it.
pub(crate) async fn limit_rates(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let digest = digest_of_token(request.headers(), state.engine.keys());
    let class = state.limits.credential_class(request.uri().path(), digest.ok().as_deref());
    let counted = peer::sender(&request).zip(class);
    match counted.map_or(Ok(()), |(from, class)| state.limits.count_address(from, class)) {
        Ok(()) => next.run(request).await,
        Err(refused) => ApiProblem::from(refused).into_response(),
    }
}

/// Returns the permission that a request needs, if any. Refuses a request without a handler: its route declares nothing.
fn needed_permission(handler: Option<&Handler>) -> Result<Option<Permission>, ApiProblem> {
    match handler {
        Some(Handler::Operation(declared)) => Ok(declared.declaration.access.permission()),
        Some(Handler::Open) => Ok(None),
        None => Err(ApiProblem::new(Code::Forbidden, "this route declares no permission")),
    }
}

/// Enforces the permission that the operation declares.
pub(crate) async fn enforce_permission(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let needed = match needed_permission(request.extensions().get()) {
        Ok(Some(permission)) => permission,
        Ok(None) => return next.run(request).await,
        Err(refused) => return refused.into_response(),
    };
    let principal = match principal(request.headers(), peer::sender(&request), &state).await {
        Ok(principal) => principal,
        Err(refused) => return refused.into_response(),
    };
    if let Err(refused) = state.limits.count_caller(&principal) {
        return ApiProblem::from(refused).into_response();
    }
    if let Some(standing) = request.extensions().get::<Activity>() {
        standing.mark_authenticated();
    }
    let caller = Caller {
        principal,
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
    };
    if let Err(refused) = caller.require(needed) {
        return ApiProblem::from(refused).into_response();
    }
    request.extensions_mut().insert(caller.principal);
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Coded, Role, TokenId};

    use super::*;

    #[test]
    fn request_without_handler_is_refused() {
        let refused = needed_permission(None).map_err(|refused| refused.cause().code());
        assert_eq!(refused, Err(Code::Forbidden));
        assert_eq!(needed_permission(Some(&Handler::Open)).ok(), Some(None));
    }

    #[test]
    fn token_without_expiry_and_one_time_token_are_refused() {
        let now = Timestamp::from_millis(1_000);
        let (later, past) = (Some(Timestamp::from_millis(1_001)), Some(now));
        let refusal = |expires_at, revoked_at, is_bootstrap| {
            let token = TokenRecord {
                id: TokenId::from_uuid(uuid::Uuid::nil()),
                name: "ann".to_owned(),
                sha256: String::new(),
                role: Role::PlatformAdmin,
                project: None,
                service_account: None,
                workload: None,
                created_at: Timestamp::from_millis(0),
                expires_at,
                revoked_at,
                is_bootstrap,
            };
            check_validity(&token, now).map_err(|refused| refused.cause().code()).err()
        };
        assert_eq!(refusal(later, None, false), None);
        assert_eq!(refusal(later, None, true), Some(Code::OneTimeTokenOnly));
        for (expires_at, revoked_at) in [(None, None), (past, None), (later, past)] {
            assert_eq!(
                refusal(expires_at, revoked_at, false),
                Some(Code::Unauthenticated),
                "{expires_at:?} {revoked_at:?}"
            );
        }
    }
}
