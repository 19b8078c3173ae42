//! Delivers and revokes kubeconfigs for people. Checks again the terms that `crates/engine/src/commands/access.rs` has checked before it
//! recorded the request.

use gpuaas_engine::{
    commands::access,
    effects::{AccessRequest, BREAK_GLASS_SECONDS_MAX, CallContext, DIRECT_SECONDS_MAX, Delivered},
};
use gpuaas_kube::{AccessRole, AccessTerms, TOKEN_SECONDS_MAX, TOKEN_SECONDS_MIN};
use gpuaas_model::{Code, Timestamp};
use gpuaas_wire::task::TaskFailure;

use crate::Rke2Effects;

/// The longest lifetimes that are offered do not exceed the longest of a token.
const _: () = assert!(DIRECT_SECONDS_MAX <= TOKEN_SECONDS_MAX && BREAK_GLASS_SECONDS_MAX <= TOKEN_SECONDS_MAX);

impl Rke2Effects {
    pub(crate) async fn deliver(
        &self,
        request: &AccessRequest,
        context: &CallContext,
    ) -> Result<Delivered, TaskFailure> {
        let terms = &terms(request, &context.workload.name.to_string())?;
        let grant = self.on_cluster(context, |cluster| async move { cluster.grant_access(terms).await }).await?;
        Ok(Delivered {
            kubeconfig: grant.kubeconfig,
            service_account: grant.service_account,
            expires_at: Timestamp::from_millis(grant.expires_at_ms),
        })
    }

    pub(crate) async fn revoke(&self, service_account: &str, context: &CallContext) -> Result<(), TaskFailure> {
        let deleted =
            self.on_cluster(context, |cluster| async move { cluster.withdraw_access(service_account).await }).await?;
        tracing::info!(workload = %context.workload.name, service_account, existed = deleted.service_account, "access revoked");
        Ok(())
    }
}

/// Returns the terms to request from the cluster. Fails if the kind, the role or the lifetime is not offered.
fn terms(request: &AccessRequest, workload: &str) -> Result<AccessTerms, TaskFailure> {
    let kind = access::kind(&request.kind).ok_or_else(|| {
        let message = format!("the kubeconfig kind {:?} is not supported; use direct or break-glass", request.kind);
        TaskFailure::new(Code::AccessKindUnknown, message)
    })?;
    let longest = kind.ttl_seconds_max;
    if !(TOKEN_SECONDS_MIN..=longest).contains(&request.ttl_seconds) {
        let message = format!(
            "{} access must last {TOKEN_SECONDS_MIN} s to {longest} s, not {} s",
            request.kind, request.ttl_seconds
        );
        return Err(TaskFailure::new(Code::FieldInvalid, message));
    }
    let role: AccessRole = request.role.parse().map_err(|()| {
        TaskFailure::new(
            Code::FieldInvalid,
            format!("the role {:?} is not supported; use cluster-admin or cluster-view", request.role),
        )
    })?;
    Ok(AccessTerms {
        name: request.name.clone(),
        role,
        kind: request.kind.clone(),
        requested_by: request.requested_by.clone(),
        seconds: request.ttl_seconds,
        context: workload.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms_of(kind: &str, role: &str, ttl_seconds: u64) -> Result<AccessTerms, Code> {
        let request = AccessRequest {
            name: "access-1".into(),
            kind: kind.into(),
            role: role.into(),
            ttl_seconds,
            requested_by: "ann".into(),
        };
        terms(&request, "prod").map_err(|failure| failure.code)
    }

    #[test]
    fn break_glass_ends_within_the_hour_and_direct_within_thirty_days() {
        assert!(terms_of("break-glass", "cluster-admin", 3_600).is_ok());
        assert_eq!(terms_of("break-glass", "cluster-admin", 3_601), Err(Code::FieldInvalid));
        assert!(terms_of("direct", "cluster-view", 2_592_000).is_ok());
        assert_eq!(terms_of("direct", "cluster-view", 2_592_001), Err(Code::FieldInvalid));
        assert_eq!(terms_of("direct", "cluster-view", 599), Err(Code::FieldInvalid));
    }

    #[test]
    fn unsupported_kinds_and_roles_are_refused() {
        assert_eq!(terms_of("gateway", "cluster-admin", 600), Err(Code::AccessKindUnknown));
        assert_eq!(terms_of("direct", "namespace-edit", 600), Err(Code::FieldInvalid));
    }
}
