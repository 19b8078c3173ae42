//! Records refused mutations of authenticated callers in the audit.
//!
//! Refusals of unauthenticated callers and rate-limit refusals are not recorded; otherwise any sender could fill the store. For the same
//! reason, refusals get individual records only up to a rate per token and address, and summaries beyond it: see [`crate::refusal_limiter`].
//! Commands record accepted mutations themselves, in the transaction of the change.

use axum::{
    extract::{MatchedPath, Request, State},
    http::{Method, Uri},
    middleware::Next,
    response::Response,
};
use gpuaas_engine::Caller;
use gpuaas_model::{ActorType, AuditAction, AuditResult, Code, Principal, WorkloadId};
use gpuaas_store::{NewAudit, StoreError};
use serde_json::json;

use crate::{
    auth, correlation,
    document::{self, DRY_RUN},
    lookup, page,
    peer::{self, PeerAddress},
    refusal_limiter,
    state::ApiState,
};

/// Longest recorded target, in bytes. The target is part of the client's path.
const TARGET_BYTES_MAX: usize = 256;

/// Code of a refusal, in the extensions of its response.
#[derive(Clone, Copy)]
pub(crate) struct Refused(pub(crate) Code);

/// Records the refusal of a mutation, under the action that a success would have recorded.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let action = route.and_then(|route| action_of(request.method(), &route, request.uri().query()));
    let Some(action) = action else { return next.run(request).await };
    let (headers, from, uri) = (request.headers().clone(), peer::sender(&request), request.uri().clone());
    let response = next.run(request).await;
    if let Some(&Refused(code)) = response.extensions().get::<Refused>()
        && response.status().is_client_error()
        && !matches!(code, Code::Unauthenticated | Code::RateLimited)
        && let Ok(principal) = auth::principal(&headers, from, &state).await
    {
        record(&state, principal, from, (action, code), &uri).await;
    }
    response
}

async fn record(
    state: &ApiState,
    principal: Principal,
    from: Option<PeerAddress>,
    (action, code): (AuditAction, Code),
    uri: &Uri,
) {
    if !state.refusals.gets_record(principal.token, from) {
        if state.refusals.count_omitted(&principal, action, code) {
            refusal_limiter::summarise_later(state.clone(), principal.token);
        }
        return;
    }
    let target = target_of(uri.path());
    let workload = workload_of(state, &principal, &target, uri.query().unwrap_or_default()).await;
    let record = NewAudit {
        workload,
        by: Some((&principal).into()),
        actor: principal.name,
        actor_type: ActorType::Principal,
        action,
        target,
        project: principal.project,
        result: AuditResult::Refused,
        correlation: Some(correlation::current_id(state)),
        metadata: json!({ "code": code }),
    };
    append(state, &record).await;
}

/// Returns the workload that a refused request names; `None` if it names none that its caller may see.
async fn workload_of(state: &ApiState, principal: &Principal, target: &str, query: &str) -> Option<WorkloadId> {
    let key = target.strip_prefix("workload/")?;
    let project = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "project").map(|(_, value)| value);
    let caller =
        Caller { principal: principal.clone(), correlation: correlation::current_id(state), is_dry_run: false };
    let mut reader = state.engine.store().read().await.ok()?;
    lookup::workload(&mut reader, &caller, project.as_deref(), key).await.ok().map(|workload| workload.id)
}

/// Appends a record in a transaction of its own.
pub(crate) async fn append(state: &ApiState, record: &NewAudit) {
    let appended = async {
        let mut tx = state.engine.store().begin().await?;
        tx.append_audit(record).await?;
        tx.commit().await
    };
    let appended: Result<(), StoreError> = appended.await;
    if let Err(error) = appended {
        tracing::error!(%error, "a refusal could not be recorded");
    }
}

/// Returns the audit action of a mutation, as its description declares it; `None` for reads and dry runs.
fn action_of(method: &Method, route: &str, query: Option<&str>) -> Option<AuditAction> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return None;
    }
    let declared = document::declared(method, route)?;
    let is_dry_run = declared.takes(DRY_RUN) && query.is_some_and(|query| page::sets(query, DRY_RUN));
    declared.declaration.audit.value().filter(|_| !is_dry_run)
}

/// Returns the target of a path: `workload/train` for `/api/v1/workloads/train/members`, the noun alone if the path names no object.
fn target_of(path: &str) -> String {
    let mut parts = path.trim_start_matches("/api/v1/").split('/');
    let noun = parts.next().unwrap_or_default();
    let noun = match noun.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => noun.strip_suffix('s').unwrap_or(noun).to_owned(),
    };
    let mut target = match parts.next() {
        Some(key) => format!("{noun}/{key}"),
        None => noun,
    };
    target.truncate(target.floor_char_boundary(TARGET_BYTES_MAX));
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutation_has_its_documented_action_and_read_has_none() {
        let deploy = action_of(&Method::POST, "/api/v1/workloads", None);
        assert_eq!(deploy.map(|action| action.to_string()).as_deref(), Some("workload.deploy"));
        assert_eq!(action_of(&Method::GET, "/api/v1/workloads", None), None);
        assert_eq!(action_of(&Method::POST, "/api/v1/nonsense", None), None);
    }

    #[test]
    fn only_valid_dry_run_flags_suppress_the_record() {
        let recorded = |route: &str, query: &str| action_of(&Method::POST, route, Some(query)).is_some();
        for dry in ["dry_run", "dry_run=true", "project=ours&dry_run=true", "dry%5Frun=true"] {
            assert!(!recorded("/api/v1/workloads", dry), "{dry}");
        }
        for real in
            ["", "dry_run=false", "project=dry_run", "xdry_run=true", "dry_run=1", "dry_run&dry_run=false", "Dry_Run"]
        {
            assert!(recorded("/api/v1/workloads", real), "{real}");
        }
        assert!(recorded("/api/v1/tokens", "dry_run=true"), "this operation has no dry run");
    }

    #[test]
    fn target_names_the_object_of_the_path_and_is_bounded() {
        assert_eq!(target_of("/api/v1/workloads/train/members"), "workload/train");
        assert_eq!(target_of("/api/v1/projects"), "project");
        assert_eq!(target_of("/api/v1/authorities/force"), "authority/force");
        assert_eq!(target_of(&format!("/api/v1/nodes/{}", "ü".repeat(5_000))).len(), 255);
    }
}
