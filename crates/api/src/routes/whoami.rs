//! The caller of the request.

use axum::Json;
use gpuaas_api_types::WhoAmI;

use crate::auth::Authenticated;

/// Returns name, role and project of the token's holder.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "access", security(("token" = [])), extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("whoami")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!([]))
    ),
    responses((status = 200, body = WhoAmI)))]
pub(crate) async fn whoami(Authenticated(caller): Authenticated) -> Json<WhoAmI> {
    let principal = caller.principal;
    Json(WhoAmI {
        name: principal.name,
        role: principal.role.to_string(),
        project: principal.project.map(|id| id.to_string()),
    })
}
