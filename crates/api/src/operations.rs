//! All operations by route. The complete document also contains every schema and takes megabytes to build, so it is built only for
//! clients that request it.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::Response,
};
use utoipa::openapi::path::HttpMethod;

use crate::{
    declared::{Declared, Handler},
    routes::{self, Described},
};

/// Returns the operation for this method and route; `None` if there is none.
pub(crate) fn declared(method: &Method, route: &str) -> Option<&'static Declared> {
    let method = described_as(method)?;
    DECLARED.get(route)?.iter().find_map(|(of, declared)| (*of == method).then_some(declared))
}

/// Attaches to each request what handles it. A request without it is denied.
pub(crate) async fn middleware(mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if let Some(handler) = handler(request.method(), route) {
        request.extensions_mut().insert(handler);
    }
    next.run(request).await
}

fn handler(method: &Method, route: Option<&str>) -> Option<Handler> {
    match route.and_then(|route| declared(method, route)) {
        Some(declared) => Some(Handler::Operation(declared)),
        None => route.is_none_or(is_open).then_some(Handler::Open),
    }
}

/// Returns whether a request that matches no operation of this route passes: the route has other methods (405), or is public.
fn is_open(route: &str) -> bool {
    DECLARED.contains_key(route) || routes::is_without_operation(route)
}

static DECLARED: LazyLock<HashMap<String, Vec<(HttpMethod, Declared)>>> = LazyLock::new(by_route);

fn by_route() -> HashMap<String, Vec<(HttpMethod, Declared)>> {
    let mut by_route: HashMap<_, Vec<_>> = HashMap::new();
    for Described { path, methods, operation, declaration } in routes::described() {
        let declared = |method| {
            let declared = Declared::of(&operation, declaration, mutates(&method));
            (method, declared)
        };
        by_route.entry(path).or_default().extend(methods.into_iter().map(declared));
    }
    by_route
}

/// Returns whether operations with this method change something.
fn mutates(method: &HttpMethod) -> bool {
    !matches!(method, HttpMethod::Get | HttpMethod::Head | HttpMethod::Options | HttpMethod::Trace)
}

/// Returns the method under which the operation that handles `method` is described.
fn described_as(method: &Method) -> Option<HttpMethod> {
    Some(match *method {
        // The handler of GET also handles HEAD, with the same permission.
        Method::GET | Method::HEAD => HttpMethod::Get,
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn named(value: &str) -> Option<&str> {
        Some(value).filter(|value| !value.starts_with("none: "))
    }

    #[test]
    fn route_without_declaration_has_no_handler() {
        let get = |route| handler(&Method::GET, route);
        assert!(get(Some("/api/v1/undeclared")).is_none() && get(Some("/api/v1/nodes/{node}/undeclared")).is_none());
        assert!(matches!(get(Some("/api/v1/nodes")), Some(Handler::Operation(_))));
        assert!(matches!(handler(&Method::TRACE, Some("/api/v1/nodes")), Some(Handler::Open)));
        for open in ["/api/v1/openapi.json", "/api/docs", "/docs/errors", "/docs/errors/{code}"] {
            assert!(matches!(get(Some(open)), Some(Handler::Open)), "{open}");
        }
        assert!(matches!(get(None), Some(Handler::Open)));
    }

    #[test]
    fn controller_may_use_only_these_operations() {
        let mut allowed: Vec<String> = Vec::new();
        for Described { path, methods, declaration, .. } in routes::described() {
            let permission = declaration.access.permission();
            if permission.is_some_and(|permission| gpuaas_model::Role::AppController.allows(permission)) {
                allowed.extend(methods.iter().map(|method| format!("{} {path}", serde_json::json!(method))));
            }
        }
        allowed.sort();
        let expected = [
            "\"get\" /api/v1/events",
            "\"get\" /api/v1/operations",
            "\"get\" /api/v1/operations/{id}",
            "\"get\" /api/v1/whoami",
            "\"get\" /api/v1/workloads/{workload}",
            "\"get\" /api/v1/workloads/{workload}/members",
            "\"put\" /api/v1/workloads/{workload}/report",
        ];
        assert_eq!(allowed, expected, "each of these must show a controller its own workload alone");
    }

    #[test]
    fn declared_properties_match_the_document() {
        let document = crate::document(&[]);
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let of = declared(&method.to_uppercase().parse().unwrap(), path).expect("the operation is described");
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let is_if_match = |of: &Value| of["$ref"] == "#/components/parameters/IfMatch";
                let query = parameters.clone().filter(|of| of["in"] == "query").map(|of| of["name"].as_str().unwrap());
                assert_eq!(of.query, query.collect::<Vec<_>>(), "{method} {path}");
                assert_eq!(of.takes_body, operation["requestBody"].is_object(), "{method} {path}");
                assert_eq!(of.checks_if_match(), parameters.clone().any(is_if_match), "{method} {path}");
                let permission = of.declaration.access.permission();
                let documented = operation["x-permission"].as_str().unwrap();
                assert_eq!(permission.map(|of| of.as_str()), named(documented), "{method} {path}");
                let audit = named(operation["x-audit"].as_str().unwrap());
                assert_eq!(of.declaration.audit.value().map(|of| of.as_str()), audit, "{method} {path}");
                operations += 1;
            }
        }
        assert_eq!(operations, routes::described().count());
    }
}
