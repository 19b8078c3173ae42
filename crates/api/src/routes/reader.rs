//! A page that displays the OpenAPI document. It loads nothing from other servers.

use axum::{
    Router,
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};

use crate::state::ApiState;

/// The page may only run scripts from this server, and only connect to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; form-action 'none'";

/// Paths of the page, its script and its style.
pub(super) const PATHS: [&str; 3] = ["/api/docs", "/api/docs/reader.js", "/api/docs/reader.css"];

pub(super) fn router() -> Router<ApiState> {
    let [document, script, style] = PATHS;
    Router::new()
        .route(document, get(async || page(Html(include_str!("reader/reader.html")))))
        .route(script, get(async || file("text/javascript", include_str!("reader/reader.js"))))
        .route(style, get(async || file("text/css", include_str!("reader/reader.css"))))
}

fn page(content: impl IntoResponse) -> Response {
    let mut response = content.into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn file(media_type: &'static str, content: &'static str) -> Response {
    page(([(header::CONTENT_TYPE, format!("{media_type}; charset=utf-8"))], content))
}
