//! Authentication by bearer token, and authorization. Every request looks its token up by digest, so a revoked token is refused
//! immediately.

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::{
    Caller, Keys,
    commands::{bootstrap, token},
};
use gpuaas_model::{Code, Principal, Timestamp};
use gpuaas_store::TokenRecord;

use crate::{
    correlation,
    document::{self, Needs},
    peer::{self, PeerAddress},
    problem::ApiProblem,
    shares::Standing,
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
        Ok(Self(Caller { principal, correlation: correlation::current_id(state) }))
    }
}

/// Returns the holder of the request's token. `from` is the peer's address.
pub(crate) async fn principal(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Principal, ApiProblem> {
    let (token, now) = look_up(headers, from, state).await?;
    refuse_unless_good(&token, now)?;
    Ok(Principal {
        token: token.id,
        name: token.name,
        role: token.role,
        project: token.project,
        service_account: token.service_account,
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
    Ok(Caller { principal, correlation: correlation::current_id(state) })
}

/// Refuses revoked and expired tokens, tokens without an expiry, and one-time tokens, which are only good for their exchange.
fn refuse_unless_good(token: &TokenRecord, now: Timestamp) -> Result<(), ApiProblem> {
    if token.revoked_at.is_some() {
        return Err(refuse("this token was revoked"));
    }
    match token.expires_at {
        Some(at) if at > now => {}
        Some(_) => return Err(refuse("this token has expired")),
        None => return Err(refuse("this token has no end, and a token must have one")),
    }
    if token.is_bootstrap {
        return Err(ApiProblem::new(
            Code::BootstrapOnly,
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
    let turn = state.limits.turn_to_look_up(from, &sha256).await?;
    let token = state.engine.store().read_once().await?.token_by_sha256(&sha256).await?;
    drop(turn);
    let now = state.engine.ports().clock.now();
    let is_good =
        token.as_ref().is_some_and(|token| token.revoked_at.is_none() && token.expires_at.is_some_and(|at| at > now));
    state.limits.looked_up(from, &sha256, is_good);
    Ok((token.ok_or_else(|| refuse("this token is unknown"))?, now))
}

/// Returns the digest of the request's token. Refuses a token that this control plane did not issue, without a look-up or a penalty.
pub(crate) fn digest_of_token(headers: &HeaderMap, keys: &Keys) -> Result<String, ApiProblem> {
    let header = headers.get(header::AUTHORIZATION).ok_or_else(|| refuse("no token was sent"))?;
    let (scheme, secret) = header.to_str().ok().and_then(|header| header.split_once(' ')).unwrap_or_default();
    // RFC 9110: the scheme name is case-insensitive.
    let secret = Some(secret).filter(|_| scheme.eq_ignore_ascii_case("Bearer"));
    let secret = secret.ok_or_else(|| refuse("the Authorization header holds no bearer token"))?.trim();
    if !token::is_genuine(keys, secret) {
        let detail = "the Authorization header holds no token of this control plane: a character was lost or changed, \
                      another control plane made it, or an earlier version did";
        return Err(ApiProblem::new(Code::Unauthenticated, detail)
            .then("copy the whole token, or ask a platform admin for a new one: gpuaas token create"));
    }
    Ok(gpuaas_trust::sha256_hex(secret.as_bytes()))
}

fn refuse(why: &str) -> ApiProblem {
    ApiProblem::new(Code::Unauthenticated, why).then("send a valid token as `Authorization: Bearer …`")
}

/// Enforces the permission that the operation's description declares; undeclared operations are denied.
pub(crate) async fn rights(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let declared = route.and_then(|route| document::declared(request.method(), &route));
    let needed = match declared.map(|declared| declared.needs) {
        // No such operation, or one that requires no token.
        None | Some(Needs::Nothing) => return next.run(request).await,
        Some(Needs::Unsaid) => {
            tracing::error!(path = request.uri().path(), "an operation names no right that it needs");
            return ApiProblem::new(Code::Internal, "the control plane failed on this request").into_response();
        }
        Some(Needs::Permission(permission)) => permission,
    };
    let principal = match principal(request.headers(), peer::sender(&request), &state).await {
        Ok(principal) => principal,
        Err(refused) => return refused.into_response(),
    };
    if let Err(refused) = state.limits.count_caller(&principal) {
        return ApiProblem::from(refused).into_response();
    }
    if let Some(standing) = request.extensions().get::<Standing>() {
        standing.authenticate();
    }
    let caller = Caller { principal, correlation: correlation::current_id(&state) };
    if let Err(refused) = caller.must(needed) {
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
    fn token_without_end_and_one_time_token_open_nothing() {
        let now = Timestamp::from_millis(1_000);
        let (later, past) = (Some(Timestamp::from_millis(1_001)), Some(now));
        let judged = |expires_at, revoked_at, is_bootstrap| {
            let token = TokenRecord {
                id: TokenId::from_uuid(uuid::Uuid::nil()),
                name: "ann".to_owned(),
                sha256: String::new(),
                role: Role::PlatformAdmin,
                project: None,
                service_account: None,
                created_at: Timestamp::from_millis(0),
                expires_at,
                revoked_at,
                is_bootstrap,
            };
            refuse_unless_good(&token, now).map_err(|refused| refused.cause().code()).err()
        };
        assert_eq!(judged(later, None, false), None);
        assert_eq!(judged(later, None, true), Some(Code::BootstrapOnly));
        for (expires_at, revoked_at) in [(None, None), (past, None), (later, past)] {
            assert_eq!(
                judged(expires_at, revoked_at, false),
                Some(Code::Unauthenticated),
                "{expires_at:?} {revoked_at:?}"
            );
        }
    }
}
