//! The operations of the API. Each resource has its own file.

mod access;
mod allocations;
mod apps;
mod archives;
mod artifacts;
mod audit;
mod audit_chain;
mod authorities;
mod bootstrap;
mod diff;
mod enroll;
mod enrollment;
mod error_pages;
mod events;
mod health;
mod install;
mod logs;
mod member_names;
mod members;
mod metrics;
mod nodes;
mod operations;
mod projects;
mod reader;
mod replicas;
mod reports;
mod residue;
mod sealing_key;
mod service_accounts;
mod sessions;
mod sign_in_links;
mod signing_keys;
mod tasks;
mod tokens;
mod whoami;
mod workloads;

pub(crate) use health::router as health;

use axum::{Router, routing::MethodRouter};
use utoipa::openapi::path::HttpMethod;
use utoipa_axum::{PathItemExt, paste, router::OpenApiRouter, routes};

use crate::{
    declaration::{Declaration, Declare},
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
            $of!(sessions::sign_in),
            $of!(sessions::get_session),
            $of!(sessions::list_sessions),
            $of!(sessions::revoke_session),
            $of!(sign_in_links::create_sign_in_link),
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
            $of!(diff::diff_workload),
            $of!(members::list_members),
            $of!(members::add_members),
            $of!(reports::report_workload),
            $of!(logs::read_logs),
            $of!(logs::read_workload_logs),
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
            $of!(audit_chain::get_audit_chain),
            $of!(audit_chain::verify_audit),
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

/// Adds every operation to a document.
pub(crate) fn documented(document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let document = OpenApiRouter::<ApiState>::with_openapi(document);
    of_every_operation!(routes).into_iter().fold(document, OpenApiRouter::routes).into_openapi()
}

/// Returns a router with every operation, the document's reader and the error pages.
pub(crate) fn operations() -> Router<ApiState> {
    let served = of_every_operation!(served);
    let operations = served.into_iter().fold(Router::new(), |router, (path, serve)| router.route(&path, serve));
    operations.merge(reader::router()).merge(error_pages::router())
}

/// Path of the OpenAPI document.
pub(crate) const OPENAPI: &str = "/api/v1/openapi.json";

/// Returns whether everyone may read the route, although it belongs to no operation of the document.
pub(crate) fn is_without_operation(route: &str) -> bool {
    route == OPENAPI || reader::PATHS.contains(&route) || error_pages::serves(route)
}
