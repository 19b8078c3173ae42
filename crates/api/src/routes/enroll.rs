//! Enrollment of agents. The token in the body is the credential; no other is required.

use axum::{Extension, Json, extract::State};
use gpuaas_engine::commands::node;
use gpuaas_model::{Code, Coded};
use gpuaas_wire::session::{EnrollRequest, EnrollResponse};

use crate::{body::Body, correlation, document::enrollment, peer::PeerAddress, problem::ApiProblem, state::ApiState};

/// Redeems an enrollment token for a certificate.
///
/// For node agents.
#[utoipa::path(
    post, path = "/api/v1/enroll", tag = "nodes", request_body(content = inline(enrollment::EnrollmentRequest)),
    extensions(
        ("x-permission" = json!("none: the enrollment token is the credential")), ("x-cli" = json!("none: for node agents")), ("x-audit" = json!("node.enroll")), ("x-event" = json!("node.enrolled")),
        ("x-errors" = json!(["enrollment_used", "enrollment_expired", "enrollment_token_mismatch", "enrollment_invalid", "not_found", "field_invalid", "state_conflict", "clock_skewed", "key_reused", "machine_not_reimaged", "reimage_unverified"]))
    ),
    responses((status = 200, body = inline(enrollment::EnrollmentResponse)))
)]
pub(crate) async fn enroll(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    Body(ask): Body<EnrollRequest>,
) -> Result<Json<EnrollResponse>, ApiProblem> {
    let from = from.map(|Extension(from)| from);
    let sha256 = node::digest_of_token(state.engine.keys(), &ask.token)?;
    state.limits.count_enrollment(from, &sha256)?;
    let redeemed = node::redeem(&state.engine, correlation::current_id(&state), ask).await;
    if let Err(refused) = &redeemed {
        state.limits.record_failed_enrollment(from, &sha256, !is_no_credential(refused.code()));
    }
    Ok(Json(redeemed?))
}

/// Returns whether the token was never valid for this node. A used or superseded token was valid, so repeating it is not guessing.
fn is_no_credential(code: Code) -> bool {
    matches!(code, Code::EnrollmentInvalid | Code::EnrollmentTokenMismatch)
}
