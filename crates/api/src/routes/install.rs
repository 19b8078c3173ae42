//! Public files that a machine fetches before it has a credential: the script, the authority's certificate, and packages.

use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use crate::{
    binary::Binary,
    declaration::{Declaration, declare},
    page::Params,
    problem::ApiProblem,
    state::ApiState,
};

/// The script. It is the same for every machine; the enrollment string contains the differences.
const SCRIPT: &str = include_str!("install/install.sh");
/// Bytes of a package that are read at once.
const PIECE_BYTES: usize = 64 * 1_024;

declare! { install_script: Declaration::public("it contains no secret", "for machines"), [] }

/// Returns the script that enrolls a machine and can remove the agent again.
#[utoipa::path(
    get, path = "/install.sh", tag = "nodes",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn install_script() -> Response {
    text("text/plain; charset=utf-8", SCRIPT.to_owned())
}

/// Selects an authority.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthorityParams {
    /// SHA-256 of the authority's certificate, which an enrollment string pins, 64 hex digits. If it is absent or unknown, the active
    /// authority is returned.
    #[serde(default, deserialize_with = "crate::page::digest")]
    #[param(value_type = Option<String>)]
    sha256: Option<String>,
}

declare! { install_authority: Declaration::public("it contains no secret", "for machines"), [] }

/// Returns the certificate of an authority in PEM.
///
/// A client must first compare its SHA-256 with the digest in the enrollment string.
#[utoipa::path(
    get, path = "/install/authority.pem", tag = "nodes", params(AuthorityParams),
    responses((status = 200, body = String, content_type = "application/pem-certificate-chain"))
)]
pub(crate) async fn install_authority(
    State(state): State<ApiState>,
    Params(params): Params<AuthorityParams>,
) -> Response {
    let authorities = state.engine.keys().authorities();
    let pinned = params.sha256.and_then(|sha256| authorities.pinned(&sha256));
    let pem = pinned.unwrap_or(authorities.active()).certificate_pem().to_owned();
    text("application/pem-certificate-chain", pem)
}

declare! { install_package: Declaration::public("it contains no secret", "for machines"), [PackagesMissing, NotFound] }

/// Returns a package, or `SHA256SUMS`, which lists all packages.
#[utoipa::path(
    get, path = "/install/packages/{file}", tag = "nodes", params(("file" = String, Path, description = "name in `SHA256SUMS`")),
    responses((status = 200, body = inline(Binary), content_type = "application/octet-stream"))
)]
pub(crate) async fn install_package(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    let (file, length) = state.install.open(&name).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok((headers, Body::from_stream(ReaderStream::with_capacity(file, PIECE_BYTES))).into_response())
}

fn text(media_type: &'static str, content: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))], content).into_response()
}
