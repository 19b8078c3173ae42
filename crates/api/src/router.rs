//! The router: every route, within the layers that all of them share.

use axum::{Router, body::Bytes, extract::State, http::header, middleware, response::IntoResponse, routing::get};
use gpuaas_model::Code;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    auth, body, correlation, document, downloads, drain, etag, headers, idempotency, metrics, operations, page,
    problem::{self, ApiProblem},
    refusals, routes,
    state::ApiState,
    workload_shell,
};

/// Returns the complete API as a router.
pub fn router(state: ApiState) -> Router {
    let api = routes::operations()
        .route(routes::OPENAPI, get(openapi))
        .fallback(workload_shell::serve)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(state.clone(), body::refuse_unexpected))
        .layer(middleware::from_fn(etag::refuse_unsupported))
        .layer(middleware::from_fn(page::refuse_unknown_parameters))
        .layer(middleware::from_fn_with_state(state.clone(), idempotency::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), auth::enforce_permission))
        .layer(middleware::from_fn_with_state(state.clone(), refusals::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), downloads::middleware))
        .layer(middleware::from_fn(operations::middleware))
        .layer(middleware::map_response(problem::to_problem))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), body::limit_time))
        .layer(middleware::from_fn_with_state(state.clone(), drain::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), auth::limit_rates))
        .layer(middleware::from_fn_with_state(state.metrics.clone(), metrics::middleware));
    api.merge(routes::health())
        .layer(middleware::from_fn(headers::middleware))
        .layer(middleware::map_response(headers::restrict))
        .layer(middleware::from_fn_with_state(state.engine.clone(), correlation::middleware))
        .with_state(state)
}

/// Serves the document, serialized once, so that repeated requests cost only the transfer.
async fn openapi(State(state): State<ApiState>) -> impl IntoResponse {
    let serialized = || {
        let manifests: Vec<_> = state.engine.catalog().apps().map(|entry| entry.app.manifest()).collect();
        Bytes::from(document::document(&manifests).to_string())
    };
    ([(header::CONTENT_TYPE, "application/json")], state.document.get_or_init(serialized).clone())
}

async fn no_such_method() -> ApiProblem {
    ApiProblem::new(Code::MethodNotAllowed, "this route does not support the method").then("see /api/v1/openapi.json")
}

/// Turns a panic into an error of its own request; other requests continue.
fn panicked(panic: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a request panicked");
    ApiProblem::new(Code::Internal, "the control plane failed on this request")
        .then("report it with the correlation id")
        .into_response()
}
