//! Records refused mutations and refused audited reads of authenticated callers in the audit.
//!
//! Refusals of unauthenticated callers and rate-limit refusals are not recorded; otherwise any sender could fill the store. For the same
//! reason, refusals get individual records only up to a rate per token and address, and summaries beyond it: see [`crate::refusal_limiter`].
//! Commands record accepted mutations themselves, in the transaction of the change.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::HeaderMap,
    middleware::Next,
    response::Response,
};
use gpuaas_engine::Caller;
use gpuaas_model::{ActorType, AuditAction, AuditResult, Code, Principal, TokenId, WorkloadId};
use gpuaas_store::{NewAudit, StoreError};
use serde_json::Value;

use crate::{
    auth, correlation,
    declared::{DRY_RUN, Declared, operation_of},
    lookup,
    naming_body::{NamingBody, bounded},
    page,
    peer::{self, PeerAddress},
    problem::Refused,
    state::ApiState,
};

/// Time for which refusals are counted before their summary is recorded.
pub(crate) const SUMMARY_AFTER: Duration = Duration::from_secs(10);

/// Records the refusal of a mutation or an audited read, under the action that a success would have recorded.
pub(crate) async fn middleware(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let action = operation_of(&request).and_then(|declared| action_of(declared, request.uri().query()));
    let Some(action) = action else { return next.run(request).await };
    let body = NamingBody::default();
    request.extensions_mut().insert(body.clone());
    let (headers, from, uri) = (request.headers().clone(), peer::sender(&request), request.uri().clone());
    let response = next.run(request).await;
    if let Some(&Refused(code)) = response.extensions().get::<Refused>()
        && response.status().is_client_error()
        && !matches!(code, Code::Unauthenticated | Code::RateLimited)
        && let Some(principal) = caller_of(response.extensions().get().cloned(), &headers, from, &state).await
    {
        let target = target_of(uri.path());
        let target = if target.contains('/') { target } else { body.complete(target) };
        record(&state, principal, from, (action, code), (target, body.metadata(code)), uri.query().unwrap_or_default())
            .await;
    }
    response
}

/// The holder of a credential in the body of a request that was refused, in the extensions of its response.
#[derive(Clone)]
pub(crate) struct RefusedHolder(pub(crate) Principal);

/// Returns the caller of a refused request.
async fn caller_of(
    known: Option<RefusedHolder>,
    headers: &HeaderMap,
    from: Option<PeerAddress>,
    state: &ApiState,
) -> Option<Principal> {
    match known {
        Some(RefusedHolder(known)) => Some(known),
        None => auth::principal(headers, from, state).await.ok(),
    }
}

async fn record(
    state: &ApiState,
    principal: Principal,
    from: Option<PeerAddress>,
    (action, code): (AuditAction, Code),
    (target, metadata): (String, Value),
    query: &str,
) {
    if !state.refusals.gets_record(principal.token, from) {
        if state.refusals.count_omitted(&principal, action, code) {
            summarise_later(state.clone(), principal.token);
        }
        return;
    }
    let workload = workload_of(state, &principal, &target, query).await;
    let record = NewAudit {
        workload,
        by: Some((&principal).into()),
        actor: principal.name,
        actor_type: ActorType::Principal,
        action,
        target,
        project: principal.project,
        result: AuditResult::Refused,
        correlation: Some(correlation::current_id(&state.engine)),
        metadata,
    };
    append(state, &record).await;
}

/// Returns the workload that a refused request names; `None` if it names none that its caller may see.
async fn workload_of(state: &ApiState, principal: &Principal, target: &str, query: &str) -> Option<WorkloadId> {
    let key = target.strip_prefix("workload/")?;
    let project = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "project").map(|(_, value)| value);
    let caller = Caller {
        principal: principal.clone(),
        correlation: correlation::current_id(&state.engine),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    };
    let mut reader = state.engine.store().read().await.ok()?;
    lookup::workload(&mut reader, &caller, project.as_deref(), key).await.ok().map(|workload| workload.id)
}

/// Schedules the summary of this token's refusals.
fn summarise_later(state: ApiState, token: TokenId) {
    let ports = state.engine.ports().clone();
    let timer = ports.runtime.sleep_until(ports.clock.now().plus(SUMMARY_AFTER));
    let summarise = async move {
        timer.await;
        for record in state.refusals.summaries(token) {
            append(&state, &record).await;
        }
    };
    ports.runtime.spawn("summary of refusals", Box::pin(summarise));
}

impl ApiState {
    /// Records all pending summaries, for a process that stops before they are due.
    pub async fn summarise_refusals(&self) {
        for record in self.refusals.all_summaries() {
            append(self, &record).await;
        }
    }
}

/// Appends a record in a transaction of its own.
async fn append(state: &ApiState, record: &NewAudit) {
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

/// Returns the audit action of an operation, as its description declares it; `None` for dry runs and for reads that are not audited.
fn action_of(declared: &Declared, query: Option<&str>) -> Option<AuditAction> {
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
    match parts.next() {
        Some(key) => bounded(&format!("{noun}/{key}")),
        None => bounded(&noun),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;
    use crate::operations::declared;

    #[test]
    fn mutation_has_its_documented_action_and_read_has_none() {
        let deploy = action_of(declared(&Method::POST, "/api/v1/workloads").unwrap(), None);
        assert_eq!(deploy.map(|action| action.to_string()).as_deref(), Some("workload.deploy"));
        assert_eq!(action_of(declared(&Method::GET, "/api/v1/workloads").unwrap(), None), None);
        for logs in ["/api/v1/workloads/{workload}/members/{member}/logs", "/api/v1/workloads/{workload}/logs"] {
            assert_eq!(action_of(declared(&Method::GET, logs).unwrap(), None), Some(AuditAction::LogsRead));
        }
    }

    #[test]
    fn only_valid_dry_run_flags_suppress_the_record() {
        let recorded =
            |route: &str, query: &str| action_of(declared(&Method::POST, route).unwrap(), Some(query)).is_some();
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
        assert_eq!(target_of(&format!("/api/v1/nodes/{}", "ü".repeat(5_000))).len(), 256);
    }
}
