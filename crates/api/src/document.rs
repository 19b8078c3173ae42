//! The OpenAPI document.

use std::{collections::HashMap, sync::OnceLock};

use axum::http::Method;
use gpuaas_model::{AuditAction, Code, Permission, Role};
use utoipa::{
    Modify, OpenApi,
    openapi::path::Operation,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

#[derive(OpenApi)]
#[openapi(
    info(title = "GPUaaS", description = "The control plane of a GPU cloud."),
    components(schemas(gpuaas_api_types::Problem)),
    modifiers(&Bearer)
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

/// The document without its routes.
pub(crate) fn base() -> utoipa::openapi::OpenApi {
    Base::openapi()
}

/// The whole document.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = crate::routes::routes().into_openapi();
    for item in document.paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
        methods.into_iter().flatten().for_each(with_common_errors);
    }
    document
}

/// Adds the codes that every operation of its kind can answer with.
fn with_common_errors(operation: &mut Operation) {
    let needs_token = operation.security.is_some();
    let takes_body = operation.request_body.is_some();
    let Some(extensions) = operation.extensions.as_mut() else { return };
    let permission: Option<Permission> =
        extensions.get("x-permission").and_then(|said| said.as_str()).and_then(|said| said.parse().ok());
    let is_denied_to_some = permission.is_some_and(|permission| Role::ALL.iter().any(|role| !role.allows(permission)));
    let Some(serde_json::Value::Array(codes)) = extensions.get_mut("x-errors") else { return };
    let mut add = |when: bool, code: Code| codes.extend(when.then(|| code.as_str().into()));
    add(needs_token, Code::Unauthenticated);
    add(is_denied_to_some, Code::Forbidden);
    add(takes_body, Code::BodyInvalid);
    add(takes_body, Code::BodyTooLarge);
    add(takes_body, Code::MediaTypeUnsupported);
    add(takes_body && needs_token, Code::IdempotencyKeyReused);
    add(true, Code::RateLimited);
    add(true, Code::Unavailable);
    add(true, Code::Internal);
}

/// What an operation's own description says of it; the description is what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// What whoever asks for it must be allowed.
    pub(crate) needs: Needs,
    /// What the audit calls it, when it changes something.
    pub(crate) audit: Option<AuditAction>,
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
pub(crate) fn declared(method: &Method, route: &str) -> Option<Declared> {
    static DECLARED: OnceLock<HashMap<(String, String), Declared>> = OnceLock::new();
    DECLARED.get_or_init(read).get(&(method.to_string(), route.to_owned())).copied()
}

fn read() -> HashMap<(String, String), Declared> {
    let document = serde_json::to_value(document()).unwrap_or_default();
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    operations
        .map(|(path, method, operation)| {
            let needs = match operation["x-permission"].as_str() {
                Some(said) if said.starts_with("none: ") => Needs::Nothing,
                Some(said) => said.parse().map_or(Needs::Unsaid, Needs::Permission),
                None => Needs::Unsaid,
            };
            let audit = operation["x-audit"].as_str().and_then(|action| action.parse().ok());
            ((method.to_uppercase(), path.clone()), Declared { needs, audit })
        })
        .collect()
}
