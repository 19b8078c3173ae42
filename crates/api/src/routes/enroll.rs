//! Enrollment of agents. The token in the body is the credential; no other is required.

use axum::{Extension, Json, extract::State};
use gpuaas_engine::commands::node;
use gpuaas_model::{AuditAction, Code, Coded, EventKind};
use gpuaas_wire::session::{EnrollRequest, EnrollResponse};

use super::enrollment;
use crate::{
    body::Body,
    correlation,
    declaration::{Declaration, Entry, declare},
    peer::PeerAddress,
    problem::ApiProblem,
    state::ApiState,
};

declare! {
    enroll: Declaration::exchanges(
        "the enrollment token is the credential", Entry::None("for node agents"), AuditAction::NodeEnroll, EventKind::NodeEnrolled,
    ),
    [EnrollmentUsed, EnrollmentExpired, EnrollmentTokenMismatch, EnrollmentInvalid, NotFound, FieldInvalid,
        StateConflict, ClockSkewed, KeyReused, MachineNotReimaged, ReimageUnverified]
}

/// Redeems an enrollment token for a certificate.
///
/// For node agents.
#[utoipa::path(
    post, path = "/api/v1/enroll", tag = "nodes", request_body = enrollment::EnrollmentRequest,
    responses((status = 200, body = enrollment::EnrollmentResponse))
)]
pub(crate) async fn enroll(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    Body(ask): Body<EnrollRequest>,
) -> Result<Json<EnrollResponse>, ApiProblem> {
    let from = from.map(|Extension(from)| from);
    let sha256 = node::digest_of_token(state.engine.keys(), &ask.token)?;
    state.limits.count_enrollment(from, &sha256)?;
    let redeemed = node::redeem(&state.engine, correlation::current_id(&state.engine), ask).await;
    if let Err(refused) = &redeemed {
        state.limits.record_failed_enrollment(from, &sha256, !is_no_credential(refused.code()));
    }
    Ok(Json(redeemed?))
}

/// Returns whether the token was never valid for this node. A used or superseded token was valid, so repeating it is not guessing.
fn is_no_credential(code: Code) -> bool {
    matches!(code, Code::EnrollmentInvalid | Code::EnrollmentTokenMismatch)
}
