//! One-time links that sign a browser in.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::SignInLink;
use gpuaas_engine::commands::sign_in;
use gpuaas_model::Code;

use crate::{
    auth::{Authenticated, OfSession},
    declaration::declare,
    problem::ApiProblem,
    state::ApiState,
};

declare! { create_sign_in_link: changes(ProjectRead, "login", SignInLinkCreate, SignInLinkCreated), [LimitReached] }

/// Issues a link that signs one browser in as the caller.
///
/// It works once, within ten minutes. Only this response contains it. A browser's session cannot have one issued: with each it could begin
/// another session, and so never end.
#[utoipa::path(post, path = "/api/v1/sign-in-links", tag = "access", security(("token" = [])),
    responses((status = 201, body = SignInLink)))]
pub(crate) async fn create_sign_in_link(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    OfSession(session): OfSession,
) -> Result<(StatusCode, Json<SignInLink>), ApiProblem> {
    if session.is_some() {
        return Err(ApiProblem::new(Code::Forbidden, "the session of a browser cannot have a sign-in link issued")
            .then("use a token: gpuaas login --browser"));
    }
    let (link, code) = sign_in::create_link(&state.engine, &caller).await?;
    let url = format!("{}/#sign-in={}", state.engine.endpoints().api_url.trim_end_matches('/'), code.expose());
    Ok((StatusCode::CREATED, Json(SignInLink { url, expires_at: link.expires_at.to_string() })))
}
