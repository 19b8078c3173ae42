//! The caller of the request.

use axum::Json;
use gpuaas_api_types::WhoAmI;
use gpuaas_model::Permission;

use crate::{auth::Authenticated, declaration::declare};

declare! { whoami: reads(WorkloadsRead, "whoami"), [] }

/// Returns name, role, project and permissions of the token's holder, and the version of the control plane.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "access", security(("token" = [])),
    responses((status = 200, body = WhoAmI)))]
pub(crate) async fn whoami(Authenticated(caller): Authenticated) -> Json<WhoAmI> {
    let principal = caller.principal;
    let permissions = Permission::ALL.iter().filter(|permission| principal.may(**permission));
    let permissions = permissions.map(ToString::to_string).collect();
    Json(WhoAmI {
        name: principal.name,
        role: principal.role.to_string(),
        project: principal.project.map(|id| id.to_string()),
        workload: principal.workload.map(|id| id.to_string()),
        token: principal.token.to_string(),
        control_plane_version: env!("CARGO_PKG_VERSION").to_owned(),
        permissions,
    })
}
