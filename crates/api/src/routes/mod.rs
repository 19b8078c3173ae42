//! One file per resource; here is how they come together.

mod access;
mod allocations;
mod apps;
mod artifacts;
mod audit;
mod authorities;
mod bootstrap;
mod enroll;
mod events;
mod health;
mod install;
mod logs;
mod members;
mod nodes;
mod operations;
mod projects;
mod reader;
mod replicas;
mod sealing_key;
mod service_accounts;
mod signing_keys;
mod tasks;
mod tokens;
mod whoami;
mod workloads;

pub(crate) use health::Readiness;

use std::sync::LazyLock;

use axum::{Router, body::Bytes, http::header, middleware, response::IntoResponse, routing::get};
use gpuaas_model::Code;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth, body, correlation, document, downloads, etag, headers, idempotency, limits, metrics, page,
    problem::{self, ApiProblem},
    refusals,
    state::ApiState,
    unread,
};

/// Every route with its place in the document.
pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(document::base())
        .routes(routes!(whoami::whoami))
        .routes(routes!(replicas::list_replicas))
        .routes(routes!(projects::list_projects, projects::create_project))
        .routes(routes!(tokens::list_tokens, tokens::create_token))
        .routes(routes!(tokens::revoke_token))
        .routes(routes!(bootstrap::bootstrap))
        .routes(routes!(service_accounts::list_service_accounts, service_accounts::create_service_account))
        .routes(routes!(service_accounts::delete_service_account))
        .routes(routes!(service_accounts::create_service_account_token))
        .routes(routes!(signing_keys::list_signing_keys))
        .routes(routes!(signing_keys::rotate_signing_keys))
        .routes(routes!(signing_keys::revoke_signing_key))
        .routes(routes!(sealing_key::get_sealing_key))
        .routes(routes!(sealing_key::rotate_sealing_key))
        .routes(routes!(authorities::list_authorities))
        .routes(routes!(authorities::rotate_authority))
        .routes(routes!(authorities::force_authority))
        .routes(routes!(nodes::list_nodes, nodes::register_node))
        .routes(routes!(nodes::get_node))
        .routes(routes!(nodes::issue_enrollment))
        .routes(routes!(nodes::ping_node))
        .routes(routes!(nodes::inspect_node))
        .routes(routes!(nodes::fix_node))
        .routes(routes!(nodes::reset_node))
        .routes(routes!(nodes::reimage_node))
        .routes(routes!(enroll::enroll))
        .routes(routes!(install::install_script))
        .routes(routes!(install::install_authority))
        .routes(routes!(install::install_package))
        .routes(routes!(allocations::list_allocations, allocations::create_allocation))
        .routes(routes!(allocations::get_allocation))
        .routes(routes!(allocations::release_allocation))
        .routes(routes!(apps::list_apps))
        .routes(routes!(apps::get_app))
        .routes(routes!(apps::placement_options))
        .routes(routes!(artifacts::list_artifacts, artifacts::import_artifacts))
        .routes(routes!(workloads::list_workloads, workloads::deploy_workload))
        .routes(routes!(workloads::get_workload))
        .routes(routes!(members::list_members, members::add_members))
        .routes(routes!(logs::read_logs))
        .routes(routes!(workloads::decommission_workload))
        .routes(routes!(workloads::resume_workload))
        .routes(routes!(access::get_access))
        .routes(routes!(access::deliver_kubeconfig))
        .routes(routes!(access::revoke_access))
        .routes(routes!(operations::list_operations))
        .routes(routes!(operations::get_operation))
        .routes(routes!(operations::cancel_operation))
        .routes(routes!(tasks::list_tasks))
        .routes(routes!(tasks::get_task))
        .routes(routes!(events::list_events))
        .routes(routes!(audit::list_audit))
}

/// The whole API, ready to be served.
pub fn router(state: ApiState) -> Router {
    let api = Router::from(routes())
        .route("/api/v1/openapi.json", get(openapi))
        .merge(reader::router())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(state.clone(), body::refuse_unasked))
        .layer(middleware::from_fn(etag::refuse_unasked))
        .layer(middleware::from_fn(page::refuse_unknown_parameters))
        .layer(middleware::from_fn_with_state(state.clone(), idempotency::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), auth::rights))
        .layer(middleware::from_fn_with_state(state.clone(), refusals::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), downloads::middleware))
        .layer(middleware::map_response(problem::explained))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), body::in_time))
        .layer(middleware::from_fn_with_state(state.clone(), unread::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), limits::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), metrics::middleware));
    api.merge(health::router())
        .layer(middleware::from_fn(headers::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), correlation::middleware))
        .with_state(state)
}

/// The document, written once: a stranger who asks for it again and again costs no more than the sending.
async fn openapi() -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
        serde_json::to_vec(&document::document()).expect("the document is plain data, as its golden file shows").into()
    });
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

async fn no_such_route() -> ApiProblem {
    ApiProblem::new(Code::NotFound, "there is no such route").then("see /api/v1/openapi.json")
}

async fn no_such_method() -> ApiProblem {
    ApiProblem::new(Code::MethodNotAllowed, "this route has no such method").then("see /api/v1/openapi.json")
}

/// A panic ends its own request and nothing else.
fn panicked(panic: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a request panicked");
    ApiProblem::new(Code::Internal, "the control plane failed on this request")
        .then("report it with the correlation id")
        .into_response()
}
