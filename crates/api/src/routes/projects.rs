//! Projects.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use gpuaas_api_types::{CreateProject, List, Project};
use gpuaas_engine::commands::project;
use gpuaas_model::{Code, Name, NameError};

use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    json::bounded,
    lookup,
    page::{DryRunParams, PageParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

declare! { list_projects: reads(ProjectRead, "project list"), [] }

/// Lists projects that the caller may see.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", security(("token" = [])), params(PageParams),
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

declare! {
    create_project: changes(ProjectsWrite, "project create", ProjectCreate, ProjectCreated),
    [FieldInvalid, NameTaken]
}

/// Creates a project.
#[utoipa::path(
    post, path = "/api/v1/projects", tag = "projects", security(("token" = [])), request_body = CreateProject,
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

declare! {
    delete_project: changes(ProjectsWrite, "project delete", ProjectDelete, ProjectDeleted),
    [NotFound, StateConflict]
}

/// Deletes an empty project.
///
/// Its name can be used again. Its audit records stay; `project=ID` selects them. With `dry_run`, nothing changes.
#[utoipa::path(
    delete, path = "/api/v1/projects/{project}", tag = "projects", security(("token" = [])),
    params(("project" = String, Path, description = "name or id"), DryRunParams),
    responses((status = 200, body = Project))
)]
pub(crate) async fn delete_project(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
) -> Result<Json<Project>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = lookup::project(&mut state.engine.store().read().await?, &caller, &key).await?.id;
    Ok(Json(convert::project(project::delete(&state.engine, &caller, id).await?)))
}

/// Parses a name from a request.
pub(crate) fn name(text: &str) -> Result<Name, ApiProblem> {
    text.parse().map_err(|error: NameError| {
        let detail = format!("{:?} is not valid: {error}", bounded(text));
        ApiProblem::new(Code::FieldInvalid, detail).about("name").then("choose a name like gpu-07 or train")
    })
}
