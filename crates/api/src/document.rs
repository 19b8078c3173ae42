//! The OpenAPI document.

use utoipa::{
    Modify, OpenApi,
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
    crate::routes::routes().into_openapi()
}
