//! Releases that are imported for apps.

use axum::{Json, extract::State, http::StatusCode};
use gpuaas_api_types::{Artifact, ImportRelease, List};
use gpuaas_artifacts::{Proof, ReleaseRequest};
use gpuaas_engine::{
    Caller, check_line,
    commands::artifact::{self, VerifiedRelease},
};
use gpuaas_model::{Code, Coded, Line, Permission};
use gpuaas_store::ArtifactRecord;
use gpuaas_trust::is_sha256_hex;

use crate::{
    auth::Authenticated,
    body::Body,
    declaration::declare,
    page::{PageParams, Params},
    problem::ApiProblem,
    state::ApiState,
};

/// Longest signature in a request, in bytes. A minisign signature has 300.
const SIGNATURE_BYTES_MAX: usize = 4_096;

declare! { list_artifacts: reads(ProjectRead, "artifact list"), [] }

/// Lists imported files.
#[utoipa::path(get, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), params(PageParams),
    responses((status = 200, body = List<Artifact>)))]
pub(crate) async fn list_artifacts(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(page): Params<PageParams>,
) -> Result<Json<List<Artifact>>, ApiProblem> {
    let artifacts = state.engine.store().read().await?.artifact_page(&page.page()).await?;
    let next_cursor = page.next_cursor(&artifacts, |artifact| artifact.id.to_string());
    Ok(Json(List::new(artifacts.into_iter().map(|artifact| shown(artifact, &caller)).collect(), next_cursor)))
}

declare! {
    import_artifacts: changes(ArtifactsWrite, "artifact import", ArtifactImport, ArtifactImported),
    [NotFound, FieldInvalid, ArtifactDigestMismatch, ArtifactTruncated, ArtifactUnsafePath, ChecksumMissing,
        ArtifactMissing, ReleaseUnverified, ReleaseUnreachable]
}

/// Imports a release.
///
/// All files are checked against the release's checksum file, which is verified by a digest or by a trusted signature; the control plane's
/// settings may also allow releases without either. If a check fails, nothing is imported.
#[utoipa::path(
    post, path = "/api/v1/artifacts", tag = "apps", security(("token" = [])), request_body = ImportRelease,
    responses((status = 201, body = List<Artifact>))
)]
pub(crate) async fn import_artifacts(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<ImportRelease>,
) -> Result<(StatusCode, Json<List<Artifact>>), ApiProblem> {
    check_line(Line::SOURCE, &ask.source, "source")?;
    let entry = artifact::importable(&state.engine, &caller, &ask.app, ask.version.as_deref())?;
    let manifest = entry.app.manifest();
    let proof = Proof { sums_sha256: ask.sums_sha256.as_deref(), signature: ask.signature.as_deref() };
    check(&proof)?;
    let version = ask.version.as_deref();
    let wanted = ReleaseRequest { files: &manifest.release_files, sums: &manifest.release_sums, proof, version };
    let imported = state.importer.import(&ask.source, &wanted).await.map_err(|error| {
        let about = error.field().unwrap_or_default();
        let problem = ApiProblem::new(error.code(), error.to_string()).about(about);
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
    let records = artifact::record_verified(&state.engine, &caller, release, imported.verified_by).await?;
    let shown = records.into_iter().map(|record| shown(record, &caller)).collect();
    Ok((StatusCode::CREATED, Json(List::new(shown, None))))
}

/// Refuses a malformed digest or signature before anything is read.
fn check(proof: &Proof<'_>) -> Result<(), ApiProblem> {
    let invalid = |field, detail: String| Err(ApiProblem::new(Code::FieldInvalid, detail).about(field));
    if !proof.sums_sha256.is_none_or(is_sha256_hex) {
        return invalid("sums_sha256", "a digest has 64 lower-case hex digits".to_owned());
    }
    if !proof.signature.is_none_or(|text| (1..=SIGNATURE_BYTES_MAX).contains(&text.len())) {
        return invalid("signature", format!("a signature has 1 to {SIGNATURE_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Returns a URL without query and fragment, which may contain a credential.
fn without_query(source: &str) -> &str {
    source.split(['?', '#']).next().unwrap_or_default()
}

/// Converts a row. Tenants do not see its source, which may be a folder or an internal address.
fn shown(record: ArtifactRecord, caller: &Caller) -> Artifact {
    let runs_the_platform = caller.principal.may(Permission::PlatformRead);
    Artifact {
        app: record.app,
        version: record.version,
        name: record.name,
        sha256: record.sha256,
        size_bytes: record.size_bytes,
        source: runs_the_platform.then_some(record.source),
        verified_by: record.verified_by.filter(|_| runs_the_platform).map(|by| by.to_string()),
        stand_in: record.stand_in,
    }
}
