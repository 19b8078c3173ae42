//! The catalog, and placement options.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{App, AppOperation, List, PlacementOption};
use gpuaas_engine::{AppEntry, CommandError, commands::placement};
use gpuaas_model::Name;
use gpuaas_store::{AllocationUser, Reader, StoreError};

use crate::{
    auth::Authenticated,
    convert,
    declaration::declare,
    lookup,
    page::{Params, ProjectPageParams},
    problem::{self, ApiProblem},
    state::ApiState,
    waiting,
};

declare! { list_apps: reads(ProjectRead, "app list"), [] }

/// Lists the apps of the catalog.
#[utoipa::path(
    get, path = "/api/v1/apps", tag = "apps", security(("token" = [])),
    responses((status = 200, body = List<App>))
)]
pub(crate) async fn list_apps(
    State(state): State<ApiState>,
    _caller: Authenticated,
) -> Result<Json<List<App>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let mut items = Vec::new();
    for entry in state.engine.catalog().apps() {
        items.push(shown(&mut reader, entry).await?);
    }
    Ok(Json(List::new(items, None)))
}

declare! { get_app: reads(ProjectRead, "app show"), [NotFound] }

/// Returns an app, with the platform's guarantees and their limits.
#[utoipa::path(
    get, path = "/api/v1/apps/{slug}", tag = "apps", security(("token" = [])), params(("slug" = String, Path)),
    responses((status = 200, body = App))
)]
pub(crate) async fn get_app(
    State(state): State<ApiState>,
    _caller: Authenticated,
    Path(slug): Path<String>,
) -> Result<Json<App>, ApiProblem> {
    let entry = state.engine.catalog().app(&slug).ok_or_else(|| CommandError::not_found("app", &slug))?;
    Ok(Json(shown(&mut state.engine.store().read().await?, entry).await?))
}

declare! { placement_options: reads(ProjectRead, "app placement-options"), [NotFound, QueryInvalid] }

/// Lists the project's allocations as placements for the app.
///
/// Unusable allocations are included, each with all its reasons.
#[utoipa::path(
    get, path = "/api/v1/apps/{slug}/placement-options", tag = "apps", security(("token" = [])),
    params(("slug" = String, Path), ProjectPageParams),
    responses((status = 200, body = List<PlacementOption>))
)]
pub(crate) async fn placement_options(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(slug): Path<String>,
    Params(params): Params<ProjectPageParams>,
) -> Result<Json<List<PlacementOption>>, ApiProblem> {
    let project = {
        let mut reader = state.engine.store().read().await?;
        let project = lookup::caller_project(&mut reader, &caller, params.project.as_deref()).await?;
        reader.project(project).await?
    };
    let page = params.page_params();
    let options = placement::options(&state.engine, &caller, project.id, &slug, &page.page()).await?;
    let next_cursor = page.next_cursor(&options, |option| option.allocation.id.to_string());
    let ids: Vec<_> = options.iter().map(|option| option.allocation.id).collect();
    let users = state.engine.store().read().await?.allocation_users(&ids).await?;
    let shown = options.into_iter().map(|of| {
        let user = users.get(&of.allocation.id);
        option(of, &project.name, user)
    });
    Ok(Json(List::new(shown.collect(), next_cursor)))
}

fn option(option: placement::PlacementOption, project: &Name, user: Option<&AllocationUser>) -> PlacementOption {
    let waiting = waiting::of_allocation(&option.allocation, &option.node);
    PlacementOption {
        usable: option.reasons.is_empty(),
        reasons: option.reasons.iter().map(problem::reason).collect(),
        allocation: convert::allocation(option.allocation, &option.node.name, project, user, waiting),
    }
}

fn operation(spec: &gpuaas_planner::OperationSpec) -> AppOperation {
    AppOperation {
        kind: spec.kind.to_string(),
        parameters_schema: spec.parameters_schema.clone(),
        available: spec.is_available,
    }
}

async fn shown(reader: &mut Reader, entry: &AppEntry) -> Result<App, StoreError> {
    let manifest = entry.app.manifest();
    let artifacts = reader.artifacts(Some(&manifest.slug), None).await?;
    let mut versions: Vec<String> = artifacts.iter().map(|artifact| artifact.version.clone()).collect();
    versions.sort();
    versions.dedup();
    let stand_in = artifacts.into_iter().filter(|artifact| artifact.stand_in).map(|artifact| artifact.version);
    let mut stand_ins: Vec<String> = stand_in.collect();
    stand_ins.sort();
    stand_ins.dedup();
    Ok(App {
        slug: manifest.slug.clone(),
        name: manifest.name.clone(),
        summary: manifest.summary.clone(),
        status: if versions.is_empty() { "draft" } else { "published" }.to_owned(),
        versions,
        stand_ins,
        promises: manifest.promises.clone(),
        not_promised: manifest.not_promised.clone(),
        placement_schema: manifest.placement_schema.clone(),
        added_members_schema: manifest.added_members_schema.clone(),
        config_schema: manifest.config_schema.clone(),
        operations: manifest.operations.iter().map(operation).collect(),
    })
}
