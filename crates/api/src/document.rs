//! The OpenAPI document. No operation returns a status that the document does not list.

mod apps;
mod common;
mod examples;
mod kind;
mod parameters;
mod schema;

use axum::http::Method;
use gpuaas_planner::Manifest;
use serde_json::Value;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use crate::{operations::declared, routes};

#[derive(OpenApi)]
#[openapi(
    info(title = "GPUaaS", description = "The control plane of a GPU cloud. Every error is a problem document (RFC 9457) with a stable code. \
        The session of a browser replaces the token: `POST /api/v1/sessions` sets its cookie, and every request with the cookie, except GET and \
        HEAD, needs the header `x-gpuaas-csrf` with the value `csrf` of `GET /api/v1/session`. A request with the header \
        `x-gpuaas-idle` does not count as a use of its session. \
        In addition to the errors of each operation: an unknown path below `/api` gets 404 `not_found`, and a method that a path does not have gets 405 \
        `method_not_allowed` with `Allow`. Without a body: 400 for a request that is not HTTP, 414 for a URL of 64 KiB or more, 431 for longer headers."),
    components(schemas(gpuaas_api_types::Problem)),
    modifiers(&Bearer, &Shared)
)]
struct Base;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("token", scheme);
        }
    }
}

struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        parameters::describe(document.components.get_or_insert_default());
    }
}

/// Returns the complete document for the apps with these manifests.
pub fn document(manifests: &[&Manifest]) -> Value {
    let mut document = routes::documented(Base::openapi());
    let mut problems = common::Responses::new();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            (Method::GET, &mut item.get),
            (Method::POST, &mut item.post),
            (Method::PUT, &mut item.put),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            let declared = declared(&method, path).expect("the same list of operations has their declarations");
            common::complete(operation, declared, &mut problems);
        }
    }
    document.components.get_or_insert_default().responses = problems;
    let mut document = serde_json::to_value(document).expect("the document contains only serializable values");
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schema::refer_to_entries(schemas);
        examples::add(schemas);
        apps::describe(schemas, manifests);
    }
    document
}

#[cfg(test)]
mod tests;
