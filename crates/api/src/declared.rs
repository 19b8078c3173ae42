//! The properties of an operation that decide how its requests are handled: its declaration, and parts of its description.

use axum::extract::Request;
use gpuaas_model::Code;
use utoipa::openapi::{
    RefOr,
    path::{Operation, ParameterIn},
};

use crate::declaration::Declaration;

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
    pub(crate) query: Vec<String>,
}

impl Declared {
    pub(crate) fn of(operation: &Operation, declaration: Declaration, mutates: bool) -> Self {
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

/// What handles a request, in the request's extensions.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// An operation.
    Operation(&'static Declared),
    /// No operation: a response that everyone may read, for example a 405.
    Open,
}

/// Returns the operation that handles a request; `None` if there is none.
pub(crate) fn operation_of(request: &Request) -> Option<&'static Declared> {
    match request.extensions().get()? {
        Handler::Operation(declared) => Some(declared),
        Handler::Open => None,
    }
}
