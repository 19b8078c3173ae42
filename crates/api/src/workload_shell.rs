//! Serves the workload shell: the files that the build embedded, and its page at every path that is no other route.
//!
//! Guarantees: the page loads nothing from other servers, runs no inline script and cannot be framed. A file under `/assets/` has a digest
//! in its name and is cached forever; the page is compared at each use, so that a browser gets a new version with the first request.
//!
//! Deliberately absent: data. The shell uses the API like every other client.

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use gpuaas_model::Code;
use gpuaas_trust::sha256_hex;

use crate::problem::ApiProblem;

/// The page may only load from this server and connect to it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
/// Path of the page.
const INDEX: &str = "/index.html";
/// Folder of the files whose names change with their content.
const ASSETS: &str = "/assets/";
/// Paths that belong to other routes, with everything below them: a mistake there must not get the page.
const RESERVED: [&str; 6] = ["/api", "/docs", "/install", "/livez", "/metrics", "/readyz"];
/// Page of a program that was built without the shell.
const NOT_BUILT: &str = include_str!("workload_shell/not_built.html");

/// A file of the shell.
struct File {
    /// Path in the URL.
    path: &'static str,
    content: &'static [u8],
    /// The content in brotli.
    br: Option<&'static [u8]>,
    /// The content in gzip.
    gzip: Option<&'static [u8]>,
}

/// The files that the build embedded; empty if it found none.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/workload_shell.rs"));

/// Serves a request that no route handles.
pub(crate) async fn serve(request: Request) -> Response {
    respond(FILES, request.method(), request.uri().path(), request.headers())
}

fn respond(files: &[File], method: &Method, path: &str, headers: &HeaderMap) -> Response {
    let is_reserved =
        RESERVED.iter().any(|of| path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if is_reserved || !matches!(*method, Method::GET | Method::HEAD) {
        return no_such_route();
    }
    let named = |path: &str| files.iter().find(|file| file.path == path);
    let found = match named(path) {
        None if path.starts_with(ASSETS) => return no_such_route(),
        None => named(INDEX),
        found => found,
    };
    let mut response = match found {
        Some(file) => of_file(file, headers),
        None => not_built(),
    };
    if *method == Method::HEAD {
        // The length of the page stays in the headers.
        *response.body_mut() = Body::empty();
    }
    response
}

fn no_such_route() -> Response {
    ApiProblem::new(Code::NotFound, "there is no such route").then("see /api/v1/openapi.json").into_response()
}

fn of_file(file: &File, headers: &HeaderMap) -> Response {
    let (coding, content) = file.accepted(headers);
    let mut response = Response::new(Body::empty());
    secure(&mut response);
    let is_asset = file.path.starts_with(ASSETS);
    let caching = if is_asset { "public, max-age=31536000, immutable" } else { "no-cache" };
    set(&mut response, header::CACHE_CONTROL, caching);
    set(&mut response, header::VARY, "accept-encoding");
    if !is_asset {
        let tag = format!("\"{}{}\"", &sha256_hex(file.content)[..16], coding.unwrap_or_default());
        let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| names(known, &tag));
        if let Ok(tag) = HeaderValue::try_from(tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
    }
    set(&mut response, header::CONTENT_TYPE, media_type(file.path));
    if let Some(coding) = coding {
        set(&mut response, header::CONTENT_ENCODING, coding);
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(content.len()));
    *response.body_mut() = Body::from(Bytes::from_static(content));
    response
}

/// Responds that the program lacks the shell.
fn not_built() -> Response {
    let mut response = Response::new(Body::from(NOT_BUILT));
    secure(&mut response);
    set(&mut response, header::CACHE_CONTROL, "no-store");
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(NOT_BUILT.len()));
    response
}

/// Adds the headers that restrict what a page does.
fn secure(response: &mut Response) {
    set(response, header::CONTENT_SECURITY_POLICY, POLICY);
    set(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(response, header::REFERRER_POLICY, "no-referrer");
    set(response, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(response, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

fn set(response: &mut Response, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Returns whether an `If-None-Match` header names the tag.
fn names(header: &HeaderValue, tag: &str) -> bool {
    let mut known = header.to_str().unwrap_or_default().split(',').map(str::trim);
    // Weak comparison: proxies that compress weaken the tag.
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

impl File {
    /// Returns the smallest form that the client accepts, with the name of its coding; without a name if it is not coded.
    fn accepted(&self, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
        let coded = [("br", self.br), ("gzip", self.gzip)];
        let accepted = coded
            .into_iter()
            .find_map(|(name, content)| content.filter(|_| accepts(headers, name)).map(|of| (name, of)));
        accepted.map_or((None, self.content), |(name, content)| (Some(name), content))
    }
}

/// Returns whether the client accepts a coding by name.
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|accepted| {
        let (name, weight) = accepted.split_once(';').unwrap_or((accepted, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case(coding) && weight.unwrap_or(1.0) > 0.0
    })
}

/// Returns the media type of a file by its extension. The closed list has what a build of the shell contains.
fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/vnd.microsoft.icon",
        "txt" => "text/plain; charset=utf-8",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
