//! Apps and the releases that are imported for them.

use std::path::Path as FilePath;

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::{App, Artifact, ImportRelease, List, Problem};
use gpuaas_artifacts::import_release;
use gpuaas_engine::commands::artifact::{self, VerifiedRelease};
use gpuaas_model::Coded;
use gpuaas_store::ArtifactRecord;

use crate::{
    auth::{Authenticated, PlatformAdmin},
    body::Body,
    problem::ApiProblem,
    state::ApiState,
};

/// The catalog.
#[utoipa::path(get, path = "/api/v1/apps", tag = "apps", security(("token" = [])), responses((status = 200, body = List<App>)))]
pub(crate) async fn list_apps(
    State(state): State<ApiState>,
    _caller: Authenticated,
) -> Result<Json<List<App>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let mut items = Vec::new();
    for entry in state.engine.catalog().apps() {
        let manifest = entry.app.manifest();
        let mut versions: Vec<String> =
            reader.artifacts(Some(&manifest.slug), None).await?.into_iter().map(|artifact| artifact.version).collect();
        versions.sort();
        versions.dedup();
        items.push(App {
            slug: manifest.slug.clone(),
            name: manifest.name.clone(),
            summary: manifest.summary.clone(),
            versions,
            promises: manifest.promises.clone(),
            not_promised: manifest.not_promised.clone(),
            placement_schema: manifest.placement_schema.clone(),
            config_schema: manifest.config_schema.clone(),
        });
    }
    Ok(Json(List { items, next_cursor: None }))
}

/// Imported files.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), responses((status = 200, body = List<Artifact>)))]
pub(crate) async fn list_artifacts(
    State(state): State<ApiState>,
    _caller: Authenticated,
) -> Result<Json<List<Artifact>>, ApiProblem> {
    let artifacts = state.engine.store().read().await?.artifacts(None, None).await?;
    Ok(Json(List { items: artifacts.into_iter().map(shown).collect(), next_cursor: None }))
}

/// Imports a release, verified against its own sum file, or nothing of it.
#[utoipa::path(
    post, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), request_body = ImportRelease,
    responses((status = 201, body = List<Artifact>), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn import_artifacts(
    State(state): State<ApiState>,
    PlatformAdmin(caller): PlatformAdmin,
    Body(ask): Body<ImportRelease>,
) -> Result<(StatusCode, Json<List<Artifact>>), ApiProblem> {
    artifact::check_version(&state.engine, &caller, &ask.app, &ask.version)?;
    let (files, sums) = match state.engine.catalog().app(&ask.app) {
        Some(entry) => (entry.app.manifest().release_files.clone(), entry.app.manifest().release_sums.clone()),
        None => (Vec::new(), String::new()),
    };
    let imported = import_release(&state.artifacts, FilePath::new(&ask.path), &files, &sums).await;
    let imported = imported.map_err(|error| {
        let problem = ApiProblem::new(error.code(), error.to_string()).about("path");
        match error.next() {
            Some(next) => problem.then(next),
            None => problem,
        }
    })?;
    let release = VerifiedRelease {
        app: ask.app,
        version: ask.version,
        files: imported.files.into_iter().map(|file| (file.name, file.sha256, file.size_bytes)).collect(),
        source: ask.path,
        stand_in: imported.stand_in,
    };
    let records = artifact::record(&state.engine, &caller, release).await?;
    Ok((StatusCode::CREATED, Json(List { items: records.into_iter().map(shown).collect(), next_cursor: None })))
}

fn shown(record: ArtifactRecord) -> Artifact {
    Artifact {
        app: record.app,
        version: record.version,
        name: record.name,
        sha256: record.sha256,
        size_bytes: record.size_bytes,
        source: record.source,
        stand_in: record.stand_in,
    }
}
