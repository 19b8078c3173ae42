//! The parts of an operation's description that decide how its requests are handled. They are read from the single description: the
//! complete document also contains every schema and takes megabytes to build, so it is built only for clients that request it.

use std::{collections::HashMap, sync::LazyLock};

use axum::http::Method;
use gpuaas_model::{AuditAction, Permission};
use serde_json::Value;
use utoipa::openapi::{
    RefOr,
    path::{HttpMethod, Operation, ParameterIn},
};

use super::common::{Kind, extension_value};
use crate::routes::{self, Described};

/// Name of the query parameter that requests a preview.
pub(crate) const DRY_RUN: &str = "dry_run";

/// Properties that an operation's description declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Permission that a caller needs.
    pub(crate) access: Access,
    /// Audit action, if the operation changes something.
    pub(crate) audit: Option<AuditAction>,
    /// True if the operation changes something.
    pub(crate) mutates: bool,
    /// True if the operation takes a body.
    pub(crate) takes_body: bool,
    /// True if the operation compares its object with `If-Match`.
    pub(crate) checks_if_match: bool,
    /// Names of the query parameters.
    query: Vec<String>,
}

impl Declared {
    fn of(operation: &Operation, mutates: bool) -> Self {
        let text = |extension| extension_value(operation, extension).and_then(Value::as_str);
        let access = match text("x-permission") {
            Some(value) if value.starts_with("none: ") => Access::Public,
            Some(value) => value.parse().map_or(Access::Undeclared, Access::Permission),
            None => Access::Undeclared,
        };
        let parameters = operation.parameters.iter().flatten();
        let query = parameters.filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
            _ => None,
        });
        Self {
            access,
            audit: text("x-audit").and_then(|action| action.parse().ok()),
            mutates,
            takes_body: operation.request_body.is_some(),
            checks_if_match: Kind::of(operation, mutates).checks_if_match,
            query: query.collect(),
        }
    }

    /// Returns whether the operation has a query parameter with this name.
    pub(crate) fn takes(&self, parameter: &str) -> bool {
        self.query.iter().any(|name| name == parameter)
    }
}

/// Permission that an operation declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// No token: the request carries another credential.
    Public,
    /// A token whose role has this permission.
    Permission(Permission),
    /// The description declares no valid permission.
    Undeclared,
}

/// Returns the operation for this method and route; `None` if there is none.
pub(crate) fn declared(method: &Method, route: &str) -> Option<&'static Declared> {
    static DECLARED: LazyLock<HashMap<String, Vec<(HttpMethod, Declared)>>> = LazyLock::new(by_route);
    let method = described_as(method)?;
    DECLARED.get(route)?.iter().find_map(|(of, declared)| (*of == method).then_some(declared))
}

fn by_route() -> HashMap<String, Vec<(HttpMethod, Declared)>> {
    let mut by_route: HashMap<_, Vec<_>> = HashMap::new();
    for Described { path, methods, operation } in routes::described() {
        let declared = |method| {
            let declared = Declared::of(&operation, mutates(&method));
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

    #[test]
    fn declared_properties_match_the_document() {
        let document = serde_json::to_value(crate::document()).unwrap();
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let of = declared(&method.to_uppercase().parse().unwrap(), path).expect("the operation is described");
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let is_if_match = |of: &Value| of["$ref"] == "#/components/parameters/IfMatch";
                let query = parameters.clone().filter(|of| of["in"] == "query").map(|of| of["name"].as_str().unwrap());
                assert_eq!(of.query, query.collect::<Vec<_>>(), "{method} {path}");
                assert_eq!(of.takes_body, operation["requestBody"].is_object(), "{method} {path}");
                assert_eq!(of.checks_if_match, parameters.clone().any(is_if_match), "{method} {path}");
                let audit = operation["x-audit"].as_str().filter(|action| !action.starts_with("none: "));
                assert_eq!(of.audit.map(|of| of.as_str()), audit, "{method} {path}");
                let is_documented = match of.access {
                    Access::Permission(permission) => operation["x-permission"] == permission.as_str(),
                    Access::Public => operation["x-permission"].as_str().is_some_and(|of| of.starts_with("none: ")),
                    Access::Undeclared => false,
                };
                assert!(is_documented, "{method} {path}: {:?}", of.access);
                operations += 1;
            }
        }
        assert_eq!(operations, routes::described().count());
    }
}
