//! The properties of an operation that decide how its requests are handled: its declaration, and parts of its single description. The
//! complete document also contains every schema and takes megabytes to build, so it is built only for clients that request it.

use std::{collections::HashMap, sync::LazyLock};

use axum::http::Method;
use gpuaas_model::Code;
use utoipa::openapi::{
    RefOr,
    path::{HttpMethod, Operation, ParameterIn},
};

use crate::{
    declaration::Declaration,
    routes::{self, Described},
};

/// Name of the query parameter that requests a preview.
pub(crate) const DRY_RUN: &str = "dry_run";

/// Properties of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// What the operation declares.
    pub(crate) declaration: Declaration,
    /// True if the operation changes something.
    pub(crate) mutates: bool,
    /// True if the operation takes a body.
    pub(crate) takes_body: bool,
    /// Names of the query parameters.
    query: Vec<String>,
}

impl Declared {
    fn of(operation: &Operation, declaration: Declaration, mutates: bool) -> Self {
        let parameters = operation.parameters.iter().flatten();
        let query = parameters.filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
            _ => None,
        });
        Self { declaration, mutates, takes_body: operation.request_body.is_some(), query: query.collect() }
    }

    /// Returns whether the operation compares its object with `If-Match`.
    pub(crate) fn checks_if_match(&self) -> bool {
        self.declaration.errors.contains(&Code::PreconditionFailed)
    }

    /// Returns whether the operation has a query parameter with this name.
    pub(crate) fn takes(&self, parameter: &str) -> bool {
        self.query.iter().any(|name| name == parameter)
    }
}

/// Returns the operation for this method and route; `None` if there is none.
pub(crate) fn declared(method: &Method, route: &str) -> Option<&'static Declared> {
    let method = described_as(method)?;
    DECLARED.get(route)?.iter().find_map(|(of, declared)| (*of == method).then_some(declared))
}

/// Returns whether the route has an operation, for whichever method.
pub(crate) fn has_operations(route: &str) -> bool {
    DECLARED.contains_key(route)
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
