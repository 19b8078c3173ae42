//! What of an operation's description decides how its requests are treated. It is read from each operation's own description: the whole document
//! has every schema too, and takes megabytes while it is made, so it is made only for who asks for it.

use std::{collections::HashMap, sync::LazyLock};

use axum::http::Method;
use gpuaas_model::{AuditAction, Permission};
use serde_json::Value;
use utoipa::openapi::{
    RefOr,
    path::{HttpMethod, Operation, ParameterIn},
};

use super::common::{Kind, said};
use crate::routes::{self, Described};

/// The parameter by which an operation is asked what it would do.
pub(crate) const DRY_RUN: &str = "dry_run";

/// What an operation's own description says of it; the description is what counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// What whoever asks for it must be allowed.
    pub(crate) needs: Needs,
    /// What the audit calls it, when it changes something.
    pub(crate) audit: Option<AuditAction>,
    /// Whether it changes something.
    pub(crate) mutates: bool,
    /// Whether it takes a body.
    pub(crate) takes_body: bool,
    /// Whether it compares its object with `If-Match`.
    pub(crate) compares: bool,
    /// The names of the parameters of its query.
    query: Vec<String>,
}

impl Declared {
    fn of(operation: &Operation, mutates: bool) -> Self {
        let text = |extension| said(operation, extension).and_then(Value::as_str);
        let needs = match text("x-permission") {
            Some(said) if said.starts_with("none: ") => Needs::Nothing,
            Some(said) => said.parse().map_or(Needs::Unsaid, Needs::Permission),
            None => Needs::Unsaid,
        };
        let parameters = operation.parameters.iter().flatten();
        let query = parameters.filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
            _ => None,
        });
        Self {
            needs,
            audit: text("x-audit").and_then(|action| action.parse().ok()),
            mutates,
            takes_body: operation.request_body.is_some(),
            compares: Kind::of(operation, mutates).compares,
            query: query.collect(),
        }
    }

    /// Whether its query has a parameter of that name.
    pub(crate) fn takes(&self, parameter: &str) -> bool {
        self.query.iter().any(|name| name == parameter)
    }
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// No token: something else is the credential.
    Nothing,
    /// A token whose role allows this.
    Permission(Permission),
    /// It does not say.
    Unsaid,
}

/// The operation of that method and route; `None` when there is none.
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

/// Whether what is asked for by that method changes something.
fn mutates(method: &HttpMethod) -> bool {
    !matches!(method, HttpMethod::Get | HttpMethod::Head | HttpMethod::Options | HttpMethod::Trace)
}

/// The method under which an operation that answers `method` is described.
fn described_as(method: &Method) -> Option<HttpMethod> {
    Some(match *method {
        // HEAD is answered by what answers GET, and asks for the same right.
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
    fn what_is_declared_of_an_operation_is_what_the_document_says_of_it() {
        let document = serde_json::to_value(crate::document()).unwrap();
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let of = declared(&method.to_uppercase().parse().unwrap(), path).expect("it is described");
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let is_if_match = |of: &Value| of["$ref"] == "#/components/parameters/IfMatch";
                let query = parameters.clone().filter(|of| of["in"] == "query").map(|of| of["name"].as_str().unwrap());
                assert_eq!(of.query, query.collect::<Vec<_>>(), "{method} {path}");
                assert_eq!(of.takes_body, operation["requestBody"].is_object(), "{method} {path}");
                assert_eq!(of.compares, parameters.clone().any(is_if_match), "{method} {path}");
                let audit = operation["x-audit"].as_str().filter(|action| !action.starts_with("none: "));
                assert_eq!(of.audit.map(|of| of.as_str()), audit, "{method} {path}");
                let needs = match of.needs {
                    Needs::Permission(permission) => operation["x-permission"] == permission.as_str(),
                    Needs::Nothing => operation["x-permission"].as_str().is_some_and(|of| of.starts_with("none: ")),
                    Needs::Unsaid => false,
                };
                assert!(needs, "{method} {path}: {:?}", of.needs);
                operations += 1;
            }
        }
        assert_eq!(operations, routes::described().count());
    }
}
