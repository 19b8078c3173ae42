//! The router. Each resource has its own file.

mod access;
mod allocations;
mod apps;
mod archives;
mod artifacts;
mod audit;
mod authorities;
mod bootstrap;
mod enroll;
mod error_pages;
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

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::header,
    middleware,
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use gpuaas_model::Code;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::path::HttpMethod;
use utoipa_axum::{PathItemExt, paste, router::OpenApiRouter, routes};

use crate::{
    auth, body, correlation,
    declaration::{Declaration, Declare},
    document, downloads, drain, etag, headers, idempotency, limits, metrics, page,
    problem::{self, ApiProblem},
    refusals,
    state::ApiState,
};

/// Expands to a list of `$of!(resource::operation)` for every operation of the API.
macro_rules! of_every_operation {
    ($of:ident) => {
        [
            $of!(whoami::whoami),
            $of!(replicas::list_replicas),
            $of!(projects::list_projects),
            $of!(projects::create_project),
            $of!(projects::delete_project),
            $of!(tokens::list_tokens),
            $of!(tokens::create_token),
            $of!(tokens::revoke_token),
            $of!(bootstrap::bootstrap),
            $of!(service_accounts::list_service_accounts),
            $of!(service_accounts::create_service_account),
            $of!(service_accounts::delete_service_account),
            $of!(service_accounts::create_service_account_token),
            $of!(signing_keys::list_signing_keys),
            $of!(signing_keys::rotate_signing_keys),
            $of!(signing_keys::revoke_signing_key),
            $of!(sealing_key::get_sealing_key),
            $of!(sealing_key::rotate_sealing_key),
            $of!(authorities::list_authorities),
            $of!(authorities::rotate_authority),
            $of!(authorities::force_authority),
            $of!(nodes::list_nodes),
            $of!(nodes::register_node),
            $of!(nodes::get_node),
            $of!(nodes::issue_enrollment),
            $of!(nodes::ping_node),
            $of!(nodes::inspect_node),
            $of!(nodes::fix_node),
            $of!(nodes::reset_node),
            $of!(nodes::reimage_node),
            $of!(nodes::retire_node),
            $of!(nodes::delete_node),
            $of!(enroll::enroll),
            $of!(install::install_script),
            $of!(install::install_authority),
            $of!(install::install_package),
            $of!(allocations::list_allocations),
            $of!(allocations::create_allocation),
            $of!(allocations::get_allocation),
            $of!(allocations::release_allocation),
            $of!(apps::list_apps),
            $of!(apps::get_app),
            $of!(apps::placement_options),
            $of!(artifacts::list_artifacts),
            $of!(artifacts::import_artifacts),
            $of!(workloads::list_workloads),
            $of!(workloads::deploy_workload),
            $of!(workloads::get_workload),
            $of!(members::list_members),
            $of!(members::add_members),
            $of!(logs::read_logs),
            $of!(operations::start_operation),
            $of!(workloads::decommission_workload),
            $of!(workloads::resume_workload),
            $of!(access::get_access),
            $of!(access::deliver_kubeconfig),
            $of!(access::revoke_access),
            $of!(operations::list_operations),
            $of!(operations::get_operation),
            $of!(operations::cancel_operation),
            $of!(tasks::list_tasks),
            $of!(tasks::get_task),
            $of!(events::list_events),
            $of!(audit::list_audit),
            $of!(archives::list_archives),
            $of!(archives::get_archive),
            $of!(archives::read_archive),
        ]
    };
}

/// Expands to the path and the handler of an operation, without building its description. An operation without a declaration does not
/// compile.
macro_rules! served {
    ($resource:ident::$operation:ident) => {
        paste! { served_by::<$resource::[<__path_ $operation>], _, _>($resource::$operation) }
    };
}

fn served_by<Operation, Handler, Takes>(handler: Handler) -> (String, MethodRouter<ApiState>)
where
    Operation: utoipa::Path + Declare,
    Handler: axum::handler::Handler<Takes, ApiState>,
    Takes: 'static,
{
    let methods = Operation::methods().into_iter().map(|method| method.to_method_filter());
    let serve = |router: MethodRouter<ApiState>, method| router.on(method, handler.clone());
    (Operation::path(), methods.fold(MethodRouter::new(), serve))
}

/// Expands to a function that builds the description of an operation.
macro_rules! described {
    ($resource:ident::$operation:ident) => {
        paste! { described_by::<$resource::[<__path_ $operation>]> as fn() -> Described }
    };
}

/// Description of an operation, with its path, methods and declaration.
pub(crate) struct Described {
    pub(crate) path: String,
    pub(crate) methods: Vec<HttpMethod>,
    pub(crate) operation: utoipa::openapi::path::Operation,
    pub(crate) declaration: Declaration,
}

fn described_by<Operation: utoipa::Path + Declare>() -> Described {
    Described {
        path: Operation::path(),
        methods: Operation::methods(),
        operation: Operation::operation(),
        declaration: Operation::DECLARATION,
    }
}

/// Returns the descriptions of all operations, built one at a time.
pub(crate) fn described() -> impl Iterator<Item = Described> {
    of_every_operation!(described).into_iter().map(|describe| describe())
}

/// Returns the document with every operation.
pub(crate) fn documented() -> utoipa::openapi::OpenApi {
    let document = OpenApiRouter::<ApiState>::with_openapi(document::base());
    of_every_operation!(routes).into_iter().fold(document, OpenApiRouter::routes).into_openapi()
}

/// Returns a router with every operation.
fn operations() -> Router<ApiState> {
    let served = of_every_operation!(served);
    served.into_iter().fold(Router::new(), |router, (path, serve)| router.route(&path, serve))
}

/// Returns whether everyone may read the route, although it belongs to no operation of the document.
pub(crate) fn is_without_operation(route: &str) -> bool {
    route == OPENAPI || reader::PATHS.contains(&route) || error_pages::serves(route)
}

/// Path of the OpenAPI document.
const OPENAPI: &str = "/api/v1/openapi.json";

/// Returns the complete API as a router.
pub fn router(state: ApiState) -> Router {
    let api = operations()
        .route(OPENAPI, get(openapi))
        .merge(reader::router())
        .merge(error_pages::router())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(state.clone(), body::refuse_unexpected))
        .layer(middleware::from_fn(etag::refuse_unsupported))
        .layer(middleware::from_fn(page::refuse_unknown_parameters))
        .layer(middleware::from_fn_with_state(state.clone(), idempotency::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), auth::enforce_permission))
        .layer(middleware::from_fn_with_state(state.clone(), refusals::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), downloads::middleware))
        .layer(middleware::map_response(problem::to_problem))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), body::limit_time))
        .layer(middleware::from_fn_with_state(state.clone(), drain::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), limits::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), metrics::middleware));
    api.merge(health::router())
        .layer(middleware::from_fn(headers::middleware))
        .layer(middleware::from_fn_with_state(state.clone(), correlation::middleware))
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

async fn no_such_route() -> ApiProblem {
    ApiProblem::new(Code::NotFound, "there is no such route").then("see /api/v1/openapi.json")
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
