//! The error pages, at the address that every problem document names as its `type`. They need no token: who is refused reads why.

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use gpuaas_api_types::error_pages;
use gpuaas_model::Code;

use crate::{problem::ApiProblem, state::ApiState};

/// A page changes only with the version of the control plane.
const CACHING: HeaderValue = HeaderValue::from_static("public, max-age=3600");

pub(super) fn router() -> Router<ApiState> {
    Router::new()
        .route(error_pages::PATH, get(async |headers: HeaderMap| respond(error_pages::INDEX, &headers)))
        .route(&page(), get(async |Path(code): Path<String>, headers: HeaderMap| respond(&code, &headers)))
}

/// Returns whether this router has the route.
pub(super) fn serves(route: &str) -> bool {
    route == error_pages::PATH || route == page()
}

/// Route of one page.
fn page() -> String {
    error_pages::path("{code}")
}

/// Responds with the page as Markdown; to a browser, which would offer it as a download, as plain text.
fn respond(code: &str, headers: &HeaderMap) -> Result<Response, ApiProblem> {
    // The links between pages are those of the files.
    let page = error_pages::page(code.strip_suffix(".md").unwrap_or(code)).ok_or_else(|| {
        ApiProblem::new(Code::NotFound, format!("there is no error code {code}"))
            .then(format!("see the list of codes: {}", error_pages::PATH))
    })?;
    let accepts = |wanted: &str| {
        headers.get(header::ACCEPT).is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains(wanted)))
    };
    let media_type = if accepts("text/html") { "text/plain; charset=utf-8" } else { "text/markdown; charset=utf-8" };
    let tag = format!("\"{}\"", &gpuaas_trust::sha256_hex(page.as_bytes())[..16]);
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let tag = HeaderValue::try_from(tag).map_err(|_| ApiProblem::new(Code::Internal, "an ETag is no header"))?;
    let common = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, CACHING),
        (header::VARY, HeaderValue::from_static("accept")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    Ok((common, [(header::CONTENT_TYPE, media_type)], page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(header::HeaderName, &str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn page_is_served_with_caching_headers_in_a_form_that_the_client_displays() {
        let page = respond("not_found", &HeaderMap::new()).unwrap();
        let header = |response: &Response, name| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(&page, header::CONTENT_TYPE), "text/markdown; charset=utf-8");
        assert!(header(&page, header::CACHE_CONTROL).contains("max-age"));
        let tag = header(&page, header::ETAG);
        let again = respond("not_found.md", &headers(&[(header::IF_NONE_MATCH, &tag)])).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let browser = respond("README", &headers(&[(header::ACCEPT, "text/html,*/*;q=0.8")])).unwrap();
        assert_eq!(header(&browser, header::CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(respond("no_such_code", &HeaderMap::new()).unwrap_err().into_response().status(), 404);
    }
}
