//! Releases that are imported for apps.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::{Artifact, ImportRelease, List};
use gpuaas_engine::commands::artifact::{self, VerifiedRelease};
use gpuaas_model::Coded;
use gpuaas_store::ArtifactRecord;

use crate::{auth::Authenticated, body::Body, problem::ApiProblem, state::ApiState};

/// Imported files.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("artifact list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!([]))
    ),
    responses((status = 200, body = List<Artifact>)))]
pub(crate) async fn list_artifacts(
    State(state): State<ApiState>,
    _caller: Authenticated,
) -> Result<Json<List<Artifact>>, ApiProblem> {
    let artifacts = state.engine.store().read().await?.artifacts(None, None).await?;
    Ok(Json(List::new(artifacts.into_iter().map(shown).collect(), None)))
}

/// Imports a release, verified against its own sum file, or nothing of it.
#[utoipa::path(
    post, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), request_body = ImportRelease,
    extensions(
        ("x-permission" = json!("artifacts.write")), ("x-cli" = json!("artifact import")), ("x-audit" = json!("artifact.import")), ("x-event" = json!("artifact.imported")),
        ("x-errors" = json!(["not_found", "field_invalid", "artifact_digest_mismatch", "artifact_truncated", "artifact_unsafe_path", "artifact_unlisted", "artifact_missing"]))
    ),
    responses((status = 201, body = List<Artifact>))
)]
pub(crate) async fn import_artifacts(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<ImportRelease>,
) -> Result<(StatusCode, Json<List<Artifact>>), ApiProblem> {
    let entry = artifact::importable(&state.engine, &caller, &ask.app, ask.version.as_deref())?;
    let manifest = entry.app.manifest();
    let imported = state.importer.import(&ask.source, &manifest.release_files, &manifest.release_sums).await;
    let imported = imported.map_err(|error| {
        let problem = ApiProblem::new(error.code(), error.to_string()).about("source");
        match error.next() {
            Some(next) => problem.then(next),
            None => problem,
        }
    })?;
    let release = VerifiedRelease {
        app: ask.app,
        version: ask.version.or(imported.version).unwrap_or_default(),
        files: imported.files.into_iter().map(|file| (file.name, file.sha256, file.size_bytes)).collect(),
        source: without_query(&ask.source).to_owned(),
        stand_in: imported.stand_in,
    };
    let records = artifact::record(&state.engine, &caller, release).await?;
    Ok((StatusCode::CREATED, Json(List::new(records.into_iter().map(shown).collect(), None))))
}

/// A URL without what may hold a credential.
fn without_query(source: &str) -> &str {
    source.split(['?', '#']).next().unwrap_or_default()
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
