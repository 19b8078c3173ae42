//! The OpenAPI document.

use gpuaas_model::{Code, Role};
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

/// Adds the codes that every operation of its role can answer with.
fn with_common_errors(operation: &mut Operation) {
    let needs_token = operation.security.is_some();
    let takes_body = operation.request_body.is_some();
    let Some(extensions) = operation.extensions.as_mut() else { return };
    let for_admins = extensions.get("x-role").is_some_and(|role| role == Role::PlatformAdmin.as_str());
    let Some(serde_json::Value::Array(codes)) = extensions.get_mut("x-errors") else { return };
    let mut add = |when: bool, code: Code| codes.extend(when.then(|| code.as_str().into()));
    add(needs_token, Code::Unauthenticated);
    add(for_admins, Code::Forbidden);
    add(takes_body, Code::BodyInvalid);
    add(takes_body, Code::BodyTooLarge);
    add(takes_body, Code::MediaTypeUnsupported);
    add(takes_body && needs_token, Code::IdempotencyKeyReused);
    add(true, Code::Unavailable);
    add(true, Code::Internal);
}
