//! Archived history.

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{Archive, List};
use gpuaas_engine::Caller;
use gpuaas_model::{Code, Permission};
use gpuaas_store::{ArchiveRecord, IdKind};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    auth::Authenticated,
    binary::Binary,
    convert,
    declaration::declare,
    lookup,
    page::{PageParams, Params, parsed},
    problem::ApiProblem,
    state::ApiState,
};

/// Filters of archives.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveParams {
    /// Kind of the entries: `operations`, `tasks`, `events` or `audit`.
    kind: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_archives: reads(ArchivesRead, "archive list"), [QueryInvalid] }

/// Lists archives of history that was removed from the database, oldest first.
#[utoipa::path(
    get, path = "/api/v1/archives", tag = "audit", security(("token" = [])), params(ArchiveParams),
    responses((status = 200, body = List<Archive>))
)]
pub(crate) async fn list_archives(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<ArchiveParams>,
) -> Result<Json<List<Archive>>, ApiProblem> {
    caller.require(Permission::ArchivesRead)?;
    let kind = parsed(params.kind.as_deref(), "kind")?;
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let archives = state.engine.store().read().await?.archives(kind, &page.page()).await?;
    let next_cursor = page.next_cursor(&archives, |archive| archive.id.to_string());
    Ok(Json(List::new(archives.into_iter().map(convert::archive).collect(), next_cursor)))
}

declare! { get_archive: reads(ArchivesRead, "archive get"), [NotFound] }

/// Returns an archive without its content.
#[utoipa::path(
    get, path = "/api/v1/archives/{id}", tag = "audit", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = Archive))
)]
pub(crate) async fn get_archive(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Archive>, ApiProblem> {
    Ok(Json(convert::archive(find(&state, &caller, &key).await?)))
}

declare! { read_archive: reads(ArchivesRead, "archive get"), [NotFound, Unavailable] }

/// Returns the content of an archive: JSON lines, compressed with zstd.
///
/// The archive's record contains the SHA-256 of the content.
#[utoipa::path(
    get, path = "/api/v1/archives/{id}/content", tag = "audit", security(("token" = [])), params(("id" = String, Path)),
    responses((status = 200, body = inline(Binary), content_type = "application/zstd"))
)]
pub(crate) async fn read_archive(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Response, ApiProblem> {
    let archive = find(&state, &caller, &key).await?;
    let missing = |why: String| {
        tracing::error!(archive = %archive.id, %why, "the file of an archive cannot be read");
        ApiProblem::new(Code::Unavailable, "the file of this archive cannot be read from the artifact store")
            .then("see the control plane's log; a backup contains the file too")
    };
    let found = state.importer.store.get(&archive.sha256, 0).await.map_err(|error| missing(error.to_string()))?;
    let (length, bytes) = found.ok_or_else(|| missing("the file is missing".to_owned()))?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok((headers, Body::from_stream(bytes)).into_response())
}

async fn find(state: &ApiState, caller: &Caller, key: &str) -> Result<ArchiveRecord, ApiProblem> {
    caller.require(Permission::ArchivesRead)?;
    let mut reader = state.engine.store().read().await?;
    let id = lookup::id(&mut reader, caller, IdKind::Archive, key).await?;
    Ok(reader.archive(id).await?)
}
