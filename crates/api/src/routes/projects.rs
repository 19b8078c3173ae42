//! Projects.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::{CreateProject, List, Project};
use gpuaas_engine::commands::project;
use gpuaas_model::{Code, Name};

use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    page::{PageParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

/// Lists projects that the caller may see.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", security(("token" = [])), params(PageParams), extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("project list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!([]))
    ),
    responses((status = 200, body = List<Project>)))]
pub(crate) async fn list_projects(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(page): Params<PageParams>,
) -> Result<Json<List<Project>>, ApiProblem> {
    let projects = state.engine.store().read().await?.projects(caller.principal.project, &page.page()).await?;
    let next_cursor = page.next_cursor(&projects, |project| project.id.to_string());
    Ok(Json(List::new(projects.into_iter().map(convert::project).collect(), next_cursor)))
}

/// Creates a project.
#[utoipa::path(
    post, path = "/api/v1/projects", tag = "projects", security(("token" = [])), request_body = CreateProject,
    extensions(
        ("x-permission" = json!("projects.write")), ("x-cli" = json!("project create")), ("x-audit" = json!("project.create")), ("x-event" = json!("project.created")),
        ("x-errors" = json!(["field_invalid", "name_taken"]))
    ),
    responses((status = 201, body = Project))
)]
pub(crate) async fn create_project(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<CreateProject>,
) -> Result<(StatusCode, Json<Project>), ApiProblem> {
    let created = project::create(&state.engine, &caller, name(&ask.name)?).await?;
    Ok((StatusCode::CREATED, Json(convert::project(created))))
}

/// Parses a name from a request.
pub(crate) fn name(text: &str) -> Result<Name, ApiProblem> {
    text.parse().map_err(|error: gpuaas_model::NameError| {
        ApiProblem::new(Code::FieldInvalid, error.to_string()).about("name").then("choose a name like gpu-07 or train")
    })
}
