//! Audit records.

use axum::{Json, extract::State};
use gpuaas_api_types::{AuditEntry, List};
use gpuaas_store::AuditFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use super::nodes::parsed;
use crate::{auth::Authenticated, convert, page::Params, page::seconds_ago, problem::ApiProblem, state::ApiState};

/// Most records in one list.
const LIMIT_MAX: u32 = 1_000;

/// Filters of audit records.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParams {
    /// Name of the actor.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    actor: Option<String>,
    /// Target of the action, for example `node/gpu-07`.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    target: Option<String>,
    /// Action, for example `task.dispatch`.
    action: Option<String>,
    /// Return records of this many last seconds only.
    since_seconds: Option<u64>,
    /// Return records after this number.
    after: Option<u64>,
    /// Number of records per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

/// Lists audit records that the caller may see, oldest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "audit", security(("token" = [])), params(AuditParams),
    extensions(
        ("x-permission" = json!("audit.read")), ("x-cli" = json!("audit list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["query_invalid"]))
    ),
    responses((status = 200, body = List<AuditEntry>))
)]
pub(crate) async fn list_audit(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<AuditParams>,
) -> Result<Json<List<AuditEntry>>, ApiProblem> {
    let limit = params.limit.unwrap_or(LIMIT_MAX).clamp(1, LIMIT_MAX);
    let filter = AuditFilter {
        actor: params.actor,
        target: params.target,
        action: parsed(params.action.as_deref(), "action")?,
        project: caller.principal.project,
        since: params.since_seconds.map(|seconds| seconds_ago(state.engine.ports().clock.now(), seconds)),
        after: params.after.unwrap_or(0),
        limit: Some(limit),
    };
    let records = state.engine.store().read().await?.audits(&filter).await?;
    let full = u32::try_from(records.len()).is_ok_and(|length| length == limit);
    let next_cursor = records.last().filter(|_| full).map(|record| record.sequence.to_string());
    Ok(Json(List::new(records.into_iter().map(convert::audit).collect(), next_cursor)))
}
