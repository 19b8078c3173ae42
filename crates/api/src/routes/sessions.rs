//! Sessions of browsers: sign-in, the session of the request, the list, and revocation, which also signs out.
//!
//! Deliberately absent: the cookie and the checks of requests that carry it (`credential`), and how sessions begin and end (`engine`).

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{BrowserSession, CurrentSession, List, SignIn};
use gpuaas_engine::{
    Caller, CommandError,
    commands::{
        session,
        sign_in::{self, Browser, RefusedSignIn, SignedIn},
    },
};
use gpuaas_model::{AuditAction, BrowserSessionId, Code, Coded as _, EventKind, Permission, Principal, Timestamp};
use gpuaas_store::{BrowserSessionRecord, Page};
use gpuaas_trust::sha256_hex;

use crate::{
    auth::{self, ActiveSession, Authenticated, OfSession},
    body::Body,
    convert, correlation, credential,
    declaration::{Declaration, Entry, declare},
    limits::RateExceeded,
    page::{PageParams, Params},
    peer::PeerAddress,
    problem::ApiProblem,
    refusals::RefusedHolder,
    state::ApiState,
};

declare! {
    sign_in: Declaration::exchanges(
        "the code or the token in the body is the credential", Entry::None("for browsers"), AuditAction::SessionCreate,
        EventKind::SessionCreated,
    ),
    [SignInInvalid, CrossSite, OneTimeTokenOnly, Forbidden, LimitReached]
}

/// Signs a browser in, with the code of a one-time sign-in link or with an API token.
///
/// The response sets the session's cookie. Requests with the cookie need no token; all except GET and HEAD need the header `x-gpuaas-csrf`
/// with the value `csrf` of the response. The session has the rights of its token. It replaces the one that this browser had, which ends.
#[utoipa::path(post, path = "/api/v1/sessions", tag = "access", request_body = SignIn,
    responses((status = 201, body = CurrentSession)))]
pub(crate) async fn sign_in(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Body(ask): Body<SignIn>,
) -> Result<Response, Refused> {
    let from = from.map(|Extension(from)| from);
    let SignedIn { session, principal, cookie } = begin(&state, from, &headers, ask).await?;
    state.limits.record_valid(&session.sha256);
    let lifetime = session.expires_at.since(session.created_at).as_secs();
    let stored = credential::stored_cookie(cookie.expose(), lifetime)?;
    let session = ActiveSession { record: session, csrf: credential::csrf_of(cookie.expose()) };
    let shown = current(&state, principal, Some(session)).await?;
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, stored)], [(header::CACHE_CONTROL, "no-store")], Json(shown))
        .into_response())
}

async fn begin(
    state: &ApiState,
    from: Option<PeerAddress>,
    headers: &HeaderMap,
    ask: SignIn,
) -> Result<SignedIn, Refused> {
    credential::check_site(headers)?;
    let replaces = credential::digest_of_cookie(headers, state.engine.keys());
    let user_agent = headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok());
    let browser = Browser { user_agent, replaces: replaces.as_deref() };
    match (ask.code, ask.token) {
        (Some(code), None) => with_link(state, from, code.trim(), browser).await,
        (None, Some(token)) => with_token(state, from, token.trim(), browser).await,
        (Some(_), Some(_)) | (None, None) => {
            let detail = "the body must have exactly one of the fields code and token";
            Err(ApiProblem::new(Code::BodyInvalid, detail).into())
        }
    }
}

async fn with_link(
    state: &ApiState,
    from: Option<PeerAddress>,
    code: &str,
    browser: Browser<'_>,
) -> Result<SignedIn, Refused> {
    if !sign_in::is_issued(state.engine.keys(), code) {
        let detail = "this control plane did not issue the sign-in link, or the link is incomplete";
        return Err(ApiProblem::new(Code::SignInInvalid, detail)
            .then("copy the whole link again, or open a new one: gpuaas login --browser")
            .into());
    }
    let sha256 = sha256_hex(code.as_bytes());
    let permit = state.limits.lookup_permit(from, &sha256).await?;
    let correlation = correlation::current_id(&state.engine);
    let signed_in = sign_in::with_link(&state.engine, correlation, &sha256, browser, permit).await;
    if signed_in.as_ref().is_err_and(|refused| refused.error.code() == Code::SignInInvalid) {
        state.limits.record_lookup(from, &sha256, false);
    }
    Ok(signed_in?)
}

async fn with_token(
    state: &ApiState,
    from: Option<PeerAddress>,
    token: &str,
    browser: Browser<'_>,
) -> Result<SignedIn, Refused> {
    let principal = auth::holder_of_entered(token, from, state).await?;
    state.limits.count_caller(&principal)?;
    state.limits.count_sign_in(principal.token)?;
    let caller = Caller {
        principal,
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    };
    let signed_in = sign_in::with_token(&state.engine, &caller, browser).await;
    signed_in.map_err(|error| RefusedSignIn { error, holder: Some(Box::new(caller.principal)) }.into())
}

/// The response to a refused sign-in. Its audit record names the holder of the credential, if there is one.
pub(crate) struct Refused(Box<Response>);

impl From<ApiProblem> for Refused {
    fn from(problem: ApiProblem) -> Self {
        Self(Box::new(problem.into_response()))
    }
}

impl From<RateExceeded> for Refused {
    fn from(exceeded: RateExceeded) -> Self {
        ApiProblem::from(exceeded).into()
    }
}

impl From<RefusedSignIn> for Refused {
    fn from(refused: RefusedSignIn) -> Self {
        let mut response = ApiProblem::from(refused.error).into_response();
        if let Some(holder) = refused.holder {
            response.extensions_mut().insert(RefusedHolder(*holder));
        }
        Self(Box::new(response))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

declare! {
    get_session: Declaration { cli: Entry::None("for browsers"), ..Declaration::reads(Permission::ProjectRead, "") },
    []
}

/// Returns the user of the request, what it may do, and the session if a browser sent the request.
#[utoipa::path(get, path = "/api/v1/session", tag = "access", security(("token" = [])),
    responses((status = 200, body = CurrentSession)))]
pub(crate) async fn get_session(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    session: Option<Extension<ActiveSession>>,
) -> Result<Response, ApiProblem> {
    let shown = current(&state, caller.principal, session.map(|Extension(session)| session)).await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(shown)).into_response())
}

async fn current(
    state: &ApiState,
    user: Principal,
    session: Option<ActiveSession>,
) -> Result<CurrentSession, ApiProblem> {
    let projects = state.engine.store().read_once().await?.projects(user.project, &Page::default()).await?;
    let permissions = Permission::ALL.iter().filter(|permission| user.may(**permission));
    let time =
        |of: fn(&BrowserSessionRecord) -> Timestamp| session.as_ref().map(|session| of(&session.record).to_string());
    Ok(CurrentSession {
        role: user.role.to_string(),
        token: user.token.to_string(),
        project: user.project.map(|id| id.to_string()),
        projects: projects.into_iter().map(convert::project).collect(),
        permissions: permissions.map(ToString::to_string).collect(),
        control_plane_version: env!("CARGO_PKG_VERSION").to_owned(),
        at: state.engine.ports().clock.now().to_string(),
        created_at: time(|session| session.created_at),
        expires_at: time(|session| session.expires_at),
        idle_expires_at: time(|session| session.idle_expires_at),
        id: session.as_ref().map(|session| session.record.id.to_string()),
        proof: session.as_ref().map(|session| session.record.proof.to_string()),
        user: user.name,
        csrf: session.map(|session| session.csrf),
    })
}

declare! { list_sessions: reads(ProjectRead, "session list"), [QueryInvalid] }

/// Lists the sessions of browsers that the caller's token began and that have not ended, oldest first.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "access", security(("token" = [])), params(PageParams),
    responses((status = 200, body = List<BrowserSession>)))]
pub(crate) async fn list_sessions(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    OfSession(current): OfSession,
    Params(page): Params<PageParams>,
) -> Result<Json<List<BrowserSession>>, ApiProblem> {
    let sessions = session::list(&state.engine, &caller).await?;
    let (sessions, next_cursor) = page.page_of(sessions, |session| session.id.to_string());
    let shown = sessions.into_iter().map(|session| shown(session, current));
    Ok(Json(List::new(shown.collect(), next_cursor)))
}

declare! { revoke_session: changes(ProjectRead, "session revoke", SessionRevoke, SessionRevoked), [NotFound] }

/// Revokes a session of the caller's token. A browser that revokes its own session signs out.
#[utoipa::path(delete, path = "/api/v1/sessions/{id}", tag = "access", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = BrowserSession)))]
pub(crate) async fn revoke_session(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    OfSession(current): OfSession,
    Path(id): Path<String>,
) -> Result<Response, ApiProblem> {
    let id: BrowserSessionId = id.parse().map_err(|_| CommandError::not_found("session", &id))?;
    let revoked = session::revoke(&state.engine, &caller, id).await?;
    let signs_out = current == Some(revoked.id);
    let mut response = Json(shown(revoked, current)).into_response();
    if signs_out {
        response.headers_mut().insert(header::SET_COOKIE, credential::removed_cookie()?);
    }
    Ok(response)
}

fn shown(session: BrowserSessionRecord, current: Option<BrowserSessionId>) -> BrowserSession {
    BrowserSession {
        id: session.id.to_string(),
        proof: session.proof.to_string(),
        created_at: session.created_at.to_string(),
        last_used_at: session.last_used_at.to_string(),
        idle_expires_at: session.idle_expires_at.to_string(),
        expires_at: session.expires_at.to_string(),
        user_agent: session.user_agent,
        current: current == Some(session.id),
    }
}
