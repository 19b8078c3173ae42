//! Authentication by bearer token or session, and authorization. Every request looks its token up, by digest or through its session, so a
//! revoked token is refused immediately.

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, Method, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::{
    Caller,
    commands::{bootstrap, session, token},
};
use gpuaas_model::{BrowserSessionId, Code, Coded as _, Permission, Principal, Timestamp};
use gpuaas_store::{BrowserSessionRecord, TokenRecord};

use crate::{
    body, correlation,
    credential::{self, Credential, refuse},
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
            session: parts.extensions.get::<ActiveSession>().map(|session| session.record.id),
        }))
    }
}

/// The session of a request that a browser sent, in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct ActiveSession {
    /// The session.
    pub(crate) record: BrowserSessionRecord,
    /// The value that changes must repeat.
    pub(crate) csrf: String,
}

/// Id of the request's session; `None` for a request with a token.
pub(crate) struct OfSession(pub(crate) Option<BrowserSessionId>);

impl FromRequestParts<ApiState> for OfSession {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.extensions.get::<ActiveSession>().map(|session| session.record.id)))
    }
}

/// Returns the user of the request. `from` is the peer's address.
pub(crate) async fn principal(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Principal, ApiProblem> {
    Ok(identify(headers, from, state).await?.0)
}

/// Returns the user of the request, and the session if a browser sent it.
async fn identify(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<(Principal, Option<ActiveSession>), ApiProblem> {
    let (sha256, csrf) = match Credential::of(headers, state.engine.keys())? {
        Credential::Token { sha256 } => {
            let (token, now) = look_up(&sha256, from, state).await?;
            let token = token.ok_or_else(|| refuse("this token is unknown"))?;
            check_validity(&token, now)?;
            return Ok((token::holder(&token), None));
        }
        Credential::Session { sha256, csrf } => (sha256, csrf),
    };
    let permit = state.limits.lookup_permit(from, &sha256).await?;
    let resumed = session::resume(&state.engine, &sha256, credential::sender(headers), permit).await;
    match &resumed {
        Ok(_) => state.limits.record_lookup(from, &sha256, true),
        Err(refused) if refused.code() == Code::Unauthenticated => state.limits.record_lookup(from, &sha256, false),
        // A failure of the database says nothing about the session.
        Err(_) => {}
    }
    let (record, token) = resumed?;
    Ok((token::holder(&token), Some(ActiveSession { record, csrf })))
}

/// Returns the caller of a request with a one-time token; refuses every other token. `from` is the peer's address.
pub(crate) async fn one_time_caller(
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Caller, ApiProblem> {
    let sha256 = credential::digest_of_token(headers, state.engine.keys())?;
    let (token, now) = look_up(&sha256, from, state).await?;
    let token = token.ok_or_else(|| refuse("this token is unknown"))?;
    let principal = bootstrap::holder(&token, now)?;
    state.limits.count_caller(&principal)?;
    Ok(Caller {
        principal,
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    })
}

/// Returns the holder of a token that was entered on the sign-in page. `from` is the peer's address.
pub(crate) async fn holder_of_entered(
    text: &str,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<Principal, ApiProblem> {
    let refuse = |why: &str| {
        ApiProblem::new(Code::SignInInvalid, why).then("enter another token, or open a link: gpuaas login --browser")
    };
    if !token::is_issued(state.engine.keys(), text) {
        return Err(refuse("this control plane did not issue the token, or the token is incomplete"));
    }
    let (token, now) = look_up(&gpuaas_trust::sha256_hex(text.as_bytes()), from, state).await?;
    let token = token.ok_or_else(|| refuse("this token is unknown"))?;
    match defect(&token, now) {
        Some(why) => Err(refuse(why)),
        None if token.is_bootstrap => Err(one_time_only()),
        None => Ok(token::holder(&token)),
    }
}

/// Refuses revoked and expired tokens, tokens without an expiry, and one-time tokens, which are only good for their exchange.
fn check_validity(token: &TokenRecord, now: Timestamp) -> Result<(), ApiProblem> {
    match defect(token, now) {
        Some(why) => Err(refuse(why)),
        None if token.is_bootstrap => Err(one_time_only()),
        None => Ok(()),
    }
}

/// Returns why a token does not authenticate its holder; `None` if it does.
fn defect(token: &TokenRecord, now: Timestamp) -> Option<&'static str> {
    match token.expires_at {
        _ if token.revoked_at.is_some() => Some("this token was revoked"),
        Some(at) if at > now => None,
        Some(_) => Some("this token has expired"),
        None => Some("this token has no expiry, which every token needs"),
    }
}

fn one_time_only() -> ApiProblem {
    ApiProblem::new(Code::OneTimeTokenOnly, "this one-time token can only be exchanged for another token")
        .then("exchange it: gpuaas bootstrap --token-file FILE --name NAME")
}

/// Returns the token with this digest, valid or not, and the time of the look-up.
async fn look_up(
    sha256: &str,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Result<(Option<TokenRecord>, Timestamp), ApiProblem> {
    let permit = state.limits.lookup_permit(from, sha256).await?;
    let token = state.engine.store().read_once().await?.token_by_sha256(sha256).await?;
    drop(permit);
    let now = state.engine.ports().clock.now();
    state.limits.record_lookup(from, sha256, token.as_ref().is_some_and(|token| token.is_valid_at(now)));
    Ok((token, now))
}

/// Counts a request against its address, unless a token will be charged for it.
pub(crate) async fn limit_rates(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let credential = Credential::of(request.headers(), state.engine.keys());
    let digest = credential.as_ref().ok().map(Credential::sha256);
    let class = state.limits.credential_class(request.uri().path(), digest);
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
    let (principal, session) = match identify(request.headers(), peer::sender(&request), &state).await {
        Ok(identified) => identified,
        Err(refused) => return refused.into_response(),
    };
    if let Err(refused) = state.limits.count_caller(&principal) {
        return ApiProblem::from(refused).into_response();
    }
    if let Some(session) = session {
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if changes && let Err(refused) = credential::check_csrf(request.headers(), &session.csrf) {
            return refused.into_response();
        }
        request.extensions_mut().insert(session);
    }
    if let Some(standing) = request.extensions().get::<Activity>() {
        standing.mark_authenticated();
    }
    let caller = Caller {
        principal,
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    };
    let permitted = caller.require(needed);
    request.extensions_mut().insert(caller.principal);
    if let Err(refused) = permitted {
        body::keep_refused(&state, request).await;
        return ApiProblem::from(refused).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Role, TokenId};

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
