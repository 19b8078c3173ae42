//! The chain of the audit: its state, and its verification.

use axum::{Json, extract::State};
use gpuaas_api_types::{AuditChain, AuditDefect, AuditHead, AuditSeal, AuditVerification, VerifyAudit};
use gpuaas_engine::{
    ChainDefect, ChainHead, Verification,
    commands::audit_chain::{self, ChainView},
};
use gpuaas_model::{AuditAction, Code, Permission};
use gpuaas_store::AuditSealRecord;

use crate::{
    auth::Authenticated,
    body::Body,
    declaration::{Declaration, declare},
    problem::ApiProblem,
    state::ApiState,
};

declare! { get_audit_chain: reads(ArchivesRead, "audit chain"), [] }

/// Returns the state of the audit's chain.
///
/// Reads the newest seal only: `POST /api/v1/audit/verify` shows whether the chain is intact.
#[utoipa::path(get, path = "/api/v1/audit/chain", tag = "audit", security(("token" = [])),
    responses((status = 200, body = AuditChain)))]
pub(crate) async fn get_audit_chain(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
) -> Result<Json<AuditChain>, ApiProblem> {
    Ok(Json(chain(audit_chain::show(&state.engine, &caller).await?)))
}

declare! {
    verify_audit: Declaration::reads(Permission::ArchivesRead, "audit verify").audited(AuditAction::AuditVerify),
    [FieldInvalid]
}

/// Verifies the audit from its first record, archives included.
///
/// A broken chain is a result and no error. Each replica verifies once at a time, and refuses further requests with `rate_limited`.
#[utoipa::path(
    post, path = "/api/v1/audit/verify", tag = "audit", security(("token" = [])), request_body = VerifyAudit,
    responses((status = 200, body = AuditVerification))
)]
pub(crate) async fn verify_audit(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<VerifyAudit>,
) -> Result<Json<AuditVerification>, ApiProblem> {
    let expected = ask.expected_head.map(head).transpose()?;
    Ok(Json(verification(audit_chain::verify(&state.engine, &caller, expected.as_ref()).await?)))
}

fn head(head: AuditHead) -> Result<ChainHead, ApiProblem> {
    if head.seal == 0 || !gpuaas_trust::is_sha256_hex(&head.digest) {
        let detail = "a head is the number of a seal, from 1, and its digest of 64 lower-case hex digits";
        return Err(ApiProblem::new(Code::FieldInvalid, detail)
            .about("expected_head")
            .then("use a head as an earlier verification printed it"));
    }
    Ok(ChainHead { seal: head.seal, digest: head.digest })
}

fn chain(view: ChainView) -> AuditChain {
    AuditChain {
        records: view.records,
        sealed_until: view.newest.as_ref().map_or(0, |seal| seal.last),
        unsealed: view.unsealed,
        unsealed_since: view.unsealed_since.map(|at| at.to_string()),
        last_seal: view.newest.map(seal),
        stopped: view.stopped,
    }
}

fn seal(seal: AuditSealRecord) -> AuditSeal {
    AuditSeal { number: seal.number, at: seal.at.to_string(), digest: seal.digest, key: seal.key_id }
}

fn verification(of: Verification) -> AuditVerification {
    AuditVerification {
        result: of.result().to_string(),
        records: of.records,
        archived: of.archived,
        unsealed: of.unsealed,
        seals: of.seals,
        head: of.head.map(|head| AuditHead { seal: head.seal, digest: head.digest }),
        sealed_at: of.sealed_at.map(|at| at.to_string()),
        defects: of.defects.into_iter().map(defect).collect(),
        defects_found: of.defects_found,
    }
}

fn defect(ChainDefect { kind, seal, record, detail }: ChainDefect) -> AuditDefect {
    AuditDefect { kind: kind.to_string(), seal, record, detail }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;

    use super::*;

    #[test]
    fn head_needs_a_number_and_a_whole_digest() {
        let digest = "a".repeat(64);
        let valid = head(AuditHead { seal: 1, digest: digest.clone() }).unwrap_or_else(|_| panic!("it is valid"));
        assert_eq!(valid, ChainHead { seal: 1, digest: digest.clone() });
        let upper_case = digest.to_uppercase();
        for (seal, digest) in [(0, digest.as_str()), (1, "ab12"), (1, upper_case.as_str())] {
            let Err(refused) = head(AuditHead { seal, digest: digest.to_owned() }) else { panic!("{seal}:{digest}") };
            assert_eq!(refused.cause().field().as_deref(), Some("expected_head"));
        }
    }
}
