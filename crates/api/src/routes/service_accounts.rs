//! Service accounts and their tokens.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use gpuaas_api_types::{CreateServiceAccount, CreateServiceAccountToken, CreatedToken, List, ServiceAccount};
use gpuaas_engine::{CommandError, commands::service_account};
use gpuaas_model::{Code, Name, ProjectId};
use gpuaas_store::ServiceAccountRecord;
use serde::Deserialize;
use utoipa::IntoParams;

use super::projects;
use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    lookup,
    page::{Params, ProjectDryRunParams, ProjectPageParams},
    problem::ApiProblem,
    state::ApiState,
};

/// Project of the service account.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceAccountParams {
    /// Name or id of the project. Defaults to the caller's project.
    project: Option<String>,
}

async fn project(state: &ApiState, caller: &gpuaas_engine::Caller, key: Option<&str>) -> Result<ProjectId, ApiProblem> {
    lookup::caller_project(&mut state.engine.store().read().await?, caller, key).await
}

fn named(name: &str) -> Result<Name, ApiProblem> {
    Ok(name.parse().map_err(|_| CommandError::not_found("service account", name))?)
}

/// Converts service accounts, with the names of the workloads that they control.
async fn shown(state: &ApiState, accounts: Vec<ServiceAccountRecord>) -> Result<Vec<ServiceAccount>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let names = reader.workload_names(accounts.iter().filter_map(|account| account.workload)).await?;
    let named = |account: ServiceAccountRecord| {
        let name = account.workload.and_then(|id| names.get(&id));
        convert::service_account(account, name)
    };
    Ok(accounts.into_iter().map(named).collect())
}

async fn shown_one(state: &ApiState, account: ServiceAccountRecord) -> Result<ServiceAccount, ApiProblem> {
    let missing = || ApiProblem::new(Code::Internal, "the service account could not be shown");
    shown(state, vec![account]).await?.pop().ok_or_else(missing)
}

declare! { list_service_accounts: reads(TokensWrite, "service-account list"), [NotFound, QueryInvalid] }

/// Lists the service accounts of a project.
#[utoipa::path(
    get, path = "/api/v1/service-accounts", tag = "access", security(("token" = [])), params(ProjectPageParams),
    responses((status = 200, body = List<ServiceAccount>))
)]
pub(crate) async fn list_service_accounts(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<ProjectPageParams>,
) -> Result<Json<List<ServiceAccount>>, ApiProblem> {
    let project = project(&state, &caller, params.project.as_deref()).await?;
    let page = params.page_params();
    let accounts = service_account::list(&state.engine, &caller, project, &page.page()).await?;
    let next_cursor = page.next_cursor(&accounts, |account| account.id.to_string());
    Ok(Json(List::new(shown(&state, accounts).await?, next_cursor)))
}

declare! {
    create_service_account: changes(TokensWrite, "service-account create", ServiceAccountCreate, ServiceAccountCreated),
    [FieldInvalid, NameTaken, NotFound, QueryInvalid, LimitReached, StateConflict]
}

/// Creates a service account: a program that acts for a project, or controls one of its workloads.
#[utoipa::path(
    post, path = "/api/v1/service-accounts", tag = "access", security(("token" = [])), request_body = CreateServiceAccount,
    responses((status = 201, body = ServiceAccount))
)]
pub(crate) async fn create_service_account(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<CreateServiceAccount>,
) -> Result<(StatusCode, Json<ServiceAccount>), ApiProblem> {
    let invalid = |field: &'static str, why: String| ApiProblem::new(Code::FieldInvalid, why).about(field);
    let name = projects::name(&ask.name)?;
    let role = ask.role.parse().map_err(|error: String| invalid("role", error))?;
    let project = project(&state, &caller, ask.project.as_deref()).await?;
    let workload = match &ask.workload {
        Some(key) => {
            let mut reader = state.engine.store().read().await?;
            Some(lookup::workload(&mut reader, &caller, Some(&project.to_string()), key).await?.id)
        }
        None => None,
    };
    let account = service_account::create(&state.engine, &caller, project, name, (role, workload)).await?;
    Ok((StatusCode::CREATED, Json(shown_one(&state, account).await?)))
}

declare! {
    delete_service_account: changes(TokensWrite, "service-account delete", ServiceAccountDelete, ServiceAccountDeleted),
    [NotFound, QueryInvalid]
}

/// Deletes a service account.
///
/// Its tokens become invalid immediately. With `dry_run`, nothing changes, and the response is what it would be.
#[utoipa::path(
    delete, path = "/api/v1/service-accounts/{name}", tag = "access", security(("token" = [])),
    params(("name" = String, Path), ProjectDryRunParams),
    responses((status = 200, body = ServiceAccount))
)]
pub(crate) async fn delete_service_account(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(name): Path<String>,
    Params(params): Params<ProjectDryRunParams>,
) -> Result<Json<ServiceAccount>, ApiProblem> {
    let project = project(&state, &caller, params.project.as_deref()).await?;
    let caller = caller.with_dry_run(params.dry_run);
    let account = service_account::delete(&state.engine, &caller, project, &named(&name)?).await?;
    Ok(Json(shown_one(&state, account).await?))
}

declare! {
    create_service_account_token: changes(TokensWrite, "service-account token", TokenCreate, TokenCreated),
    [FieldInvalid, NotFound, QueryInvalid, LimitReached]
}

/// Creates a token for a service account.
///
/// Only this response contains the token's secret.
#[utoipa::path(
    post, path = "/api/v1/service-accounts/{name}/tokens", tag = "access", security(("token" = [])),
    params(("name" = String, Path), ServiceAccountParams), request_body = CreateServiceAccountToken,
    responses((status = 201, body = CreatedToken))
)]
pub(crate) async fn create_service_account_token(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(name): Path<String>,
    Params(params): Params<ServiceAccountParams>,
    Body(ask): Body<CreateServiceAccountToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiProblem> {
    let project = project(&state, &caller, params.project.as_deref()).await?;
    let made = service_account::create_token(&state.engine, &caller, project, &named(&name)?, ask.ttl_seconds).await;
    let (record, secret) = made?;
    state.limits.record_valid(&record.sha256);
    let created =
        CreatedToken { token: super::tokens::shown(&state, record).await?, secret: secret.expose().to_owned() };
    Ok((StatusCode::CREATED, Json(created)))
}
