//! Completes the description of every operation with what all operations of its kind share: accepted headers, error codes, and one response
//! for each status of these codes.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::{
    AllOfBuilder, Content, Header, Object, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Schema, Type,
    path::Operation,
};

use super::{kind::Kind, parameters};
use crate::declared::Declared;

/// Responses of several operations, each described once.
pub(super) type Responses = BTreeMap<String, RefOr<Response>>;

/// Completes the description of an operation and adds the responses that it references to `shared`.
pub(super) fn complete(operation: &mut Operation, declared: &Declared, shared: &mut Responses) {
    let kind = Kind::of(operation, declared);
    let codes = kind.codes(declared.declaration.errors);
    parameters::complete(operation, &kind);
    // Error responses come from the declared codes only.
    operation.responses.responses.retain(|status, _| status.starts_with('2'));
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response {
            describe_success(status, response);
        }
    }
    if kind.has_etag {
        let unchanged = ResponseBuilder::new().description("Not modified: the ETag matches `If-None-Match`.");
        operation.responses.responses.insert("304".to_owned(), unchanged.build().into());
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            response.headers.insert("Correlation-Id".to_owned(), RefOr::Ref(Ref::new(parameters::ECHOED)));
        }
    }
    let mut by_status: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    codes.iter().for_each(|code| {
        by_status.entry(code.status()).or_default().insert(code.as_str());
    });
    let mut refer = |status: u16, name: String, response: Response| {
        let reference = Ref::new(format!("#/components/responses/{name}"));
        operation.responses.responses.insert(status.to_string(), RefOr::Ref(reference));
        shared.insert(name, response.into());
    };
    for (status, codes) in by_status {
        let name = codes.iter().copied().collect::<Vec<_>>().join(".");
        refer(status, name, problem(status, codes));
    }
    // hyper refuses these headers before any operation is known.
    let refused = ResponseBuilder::new().description("The headers are longer than 64 KiB. Without a body.");
    refer(431, "headers_too_large".to_owned(), refused.build());
    operation.extensions = Some(declared.declaration.extensions(&codes));
}

fn describe_success(status: &str, response: &mut Response) {
    if response.description.is_empty() {
        let description = match status {
            "201" => "Created.",
            "202" => "Accepted. The work continues in the background.",
            _ => "Success.",
        };
        response.description = description.to_owned();
    }
}

/// Returns the response for `status`, which carries one of `codes`.
fn problem(status: u16, codes: BTreeSet<&str>) -> Response {
    let code = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes.iter().copied()));
    let schema = AllOfBuilder::new()
        .item(Ref::from_schema_name("Problem"))
        .item(ObjectBuilder::new().property("code", code))
        .build();
    let description = codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
    let mut response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", Content::new(Some(Schema::AllOf(schema))))
        .build();
    let header = |description: &str| -> RefOr<Header> {
        let mut header = Header::new(Object::with_type(Type::String));
        header.description = Some(description.to_owned());
        header.into()
    };
    response.headers.insert("Correlation-Id".to_owned(), RefOr::Ref(Ref::new(parameters::ECHOED)));
    match status {
        401 => response.headers.insert("WWW-Authenticate".to_owned(), header("`Bearer`.")),
        429 => response.headers.insert("Retry-After".to_owned(), header("Seconds to wait.")),
        _ => None,
    };
    response
}
