//! Where agents redeem their enrollment tokens. The token in the body is the credential; no other is asked for.

use axum::{Json, extract::State};
use gpuaas_api_types::Problem;
use gpuaas_engine::commands::node;
use gpuaas_wire::session::{EnrollRequest, EnrollResponse};

use crate::{body::Body, correlation, problem::ApiProblem, state::ApiState};

/// Redeems an enrollment token for a certificate. For node agents.
#[utoipa::path(
    post, path = "/api/v1/enroll", tag = "nodes", request_body = serde_json::Value,
    extensions(
        ("x-permission" = json!("none: the enrollment token is the credential")), ("x-cli" = json!("none: for node agents")), ("x-audit" = json!("node.enroll")), ("x-event" = json!("node.enrolled")),
        ("x-errors" = json!(["enrollment_used", "enrollment_expired", "enrollment_foreign", "enrollment_invalid", "field_invalid"]))
    ),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = Problem, content_type = "application/problem+json"))
)]
pub(crate) async fn enroll(
    State(state): State<ApiState>,
    Body(ask): Body<EnrollRequest>,
) -> Result<Json<EnrollResponse>, ApiProblem> {
    Ok(Json(node::redeem(&state.engine, correlation::current_id(&state), ask).await?))
}
