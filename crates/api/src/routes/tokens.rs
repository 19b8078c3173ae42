//! API tokens.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use gpuaas_api_types::{CreateToken, CreatedToken, List, Token};
use gpuaas_engine::commands::token::{self, NewToken};
use gpuaas_model::Code;
use gpuaas_store::{IdKind, TokenRecord};

use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    lookup,
    page::{DryRunParams, Params, ProjectPageParams},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_tokens: reads(TokensWrite, "token list"), [NotFound, QueryInvalid] }

/// Lists tokens without their secrets: those of one project, or all tokens for a platform role that names none.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "access", security(("token" = [])), params(ProjectPageParams),
    responses((status = 200, body = List<Token>)))]
pub(crate) async fn list_tokens(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<ProjectPageParams>,
) -> Result<Json<List<Token>>, ApiProblem> {
    let page = params.page_params();
    let mut reader = state.engine.store().read().await?;
    let project = lookup::listed_project(&mut reader, &caller, params.project.as_deref()).await?;
    let tokens = reader.tokens(project, &page.page()).await?;
    let next_cursor = page.next_cursor(&tokens, |token| token.id.to_string());
    let names = reader.project_names(tokens.iter().filter_map(|token| token.project)).await?;
    let shown = tokens.into_iter().map(|token| {
        let name = token.project.and_then(|project| names.get(&project));
        convert::token(token, name)
    });
    Ok(Json(List::new(shown.collect(), next_cursor)))
}

declare! {
    create_token: changes(TokensWrite, "token create", TokenCreate, TokenCreated),
    [FieldInvalid, NotFound, LimitReached]
}

/// Creates a token.
///
/// Only this response contains the token's secret.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "access", security(("token" = [])), request_body = CreateToken,
    responses((status = 201, body = CreatedToken))
)]
pub(crate) async fn create_token(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<CreateToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiProblem> {
    let role = ask.role.parse().map_err(|error: String| ApiProblem::new(Code::FieldInvalid, error).about("role"))?;
    let project = match ask.project {
        Some(key) => {
            let mut reader = state.engine.store().read().await?;
            Some(lookup::caller_project(&mut reader, &caller, Some(&key)).await?)
        }
        None => caller.principal.project,
    };
    let new = NewToken { name: ask.name, role, project, ttl_seconds: ask.ttl_seconds };
    let (record, secret) = token::create(&state.engine, &caller, new).await?;
    state.limits.record_valid(&record.sha256);
    let created = CreatedToken { token: shown(&state, record).await?, secret: secret.expose().to_owned() };
    Ok((StatusCode::CREATED, Json(created)))
}

declare! { revoke_token: changes(TokensWrite, "token revoke", TokenRevoke, TokenRevoked), [NotFound] }

/// Revokes a token.
///
/// With `dry_run`, nothing changes, and the response is what it would be.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "access", security(("token" = [])), params(("id" = String, Path), DryRunParams),
    responses((status = 200, body = Token))
)]
pub(crate) async fn revoke_token(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
    Params(params): Params<DryRunParams>,
) -> Result<Json<Token>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = lookup::id(&mut state.engine.store().read_once().await?, &caller, IdKind::Token, &id).await?;
    let revoked = token::revoke(&state.engine, &caller, id).await?;
    Ok(Json(shown(&state, revoked).await?))
}

/// Converts a token, with the name of its project.
pub(super) async fn shown(state: &ApiState, record: TokenRecord) -> Result<Token, ApiProblem> {
    let projects = state.engine.store().read_once().await?.project_names(record.project).await?;
    let project = record.project.and_then(|id| projects.get(&id));
    Ok(convert::token(record, project))
}
