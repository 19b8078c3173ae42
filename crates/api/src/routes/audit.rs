//! Audit records.

use axum::{Json, extract::State};
use gpuaas_api_types::{AuditEntry, List};
use gpuaas_model::{Code, CorrelationId, Timestamp};
use gpuaas_store::AuditFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    auth::Authenticated,
    convert,
    declaration::declare,
    lookup,
    page::{Params, is_newest_first, parsed},
    problem::ApiProblem,
    state::ApiState,
};

/// Most records in one list.
const LIMIT_MAX: u32 = 1_000;

/// Filters of audit records.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParams {
    /// Name of the actor: that of a token, `node/NAME`, or `control-plane`.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    actor: Option<String>,
    /// Target of the action, for example `node/gpu-07`.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    target: Option<String>,
    /// Action, for example `task.dispatch`.
    action: Option<String>,
    /// Result, for example `refused`.
    result: Option<String>,
    /// Name or id of the project; also the id of a deleted one. Defaults to the caller's project, or to all.
    project: Option<String>,
    /// Name or id of a workload: the records about it and about its tasks. Of several workloads with one name, the newest.
    workload: Option<String>,
    /// Correlation id of the request that caused the records.
    correlation: Option<String>,
    /// Return records at or after this time.
    since: Option<String>,
    /// Return records before this time.
    until: Option<String>,
    /// Order of the records: `oldest` first, the default, or `newest` first.
    order: Option<String>,
    /// `next_cursor` of the previous page: return the records after the one with this number, in the chosen order.
    after: Option<u64>,
    /// Number of records per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_audit: reads(AuditRead, "audit list"), [QueryInvalid, NotFound] }

/// Lists audit records that the caller may see.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "audit", security(("token" = [])), params(AuditParams),
    responses((status = 200, body = List<AuditEntry>))
)]
pub(crate) async fn list_audit(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<AuditParams>,
) -> Result<Json<List<AuditEntry>>, ApiProblem> {
    let limit = params.limit.unwrap_or(LIMIT_MAX).clamp(1, LIMIT_MAX);
    let (after, before) = position(params.order.as_deref(), params.after)?;
    let correlation: Option<Result<CorrelationId, _>> = params.correlation.map(|id| id.parse());
    let correlation = correlation.transpose();
    let mut filter = AuditFilter {
        actor: params.actor,
        target: params.target,
        action: parsed(params.action.as_deref(), "action")?,
        result: parsed(params.result.as_deref(), "result")?,
        correlation: correlation.map_err(|_| invalid("correlation", "a correlation id is a whole UUID"))?,
        since: time(params.since.as_deref(), "since")?,
        until: time(params.until.as_deref(), "until")?,
        after,
        before,
        limit: Some(limit),
        ..AuditFilter::default()
    };
    if filter.since.zip(filter.until).is_some_and(|(since, until)| since >= until) {
        return Err(invalid("until", "until must be later than since"));
    }
    let mut reader = state.engine.store().read().await?;
    let project = params.project.as_deref();
    filter.project = lookup::project_of_history(&mut reader, &caller, project).await?;
    if let Some(workload) = &params.workload {
        filter.workload = Some(lookup::workload(&mut reader, &caller, project, workload).await?.id);
    }
    let records = reader.audits(&filter).await?;
    let full = u32::try_from(records.len()).is_ok_and(|length| length == limit);
    let next_cursor = records.last().filter(|_| full).map(|record| record.sequence.to_string());
    Ok(Json(List::new(records.into_iter().map(convert::audit).collect(), next_cursor)))
}

/// Returns the numbers after which or before which a page begins.
fn position(order: Option<&str>, after: Option<u64>) -> Result<(u64, Option<u64>), ApiProblem> {
    Ok(match is_newest_first(order)? {
        false => (after.unwrap_or(0), None),
        true => (0, Some(after.unwrap_or(AuditFilter::NEWEST))),
    })
}

fn time(text: Option<&str>, field: &str) -> Result<Option<Timestamp>, ApiProblem> {
    let parse = |text: &str| text.parse().map_err(|_| invalid(field, "the time is not like 2026-07-01T08:00:00Z"));
    text.map(parse).transpose()
}

fn invalid(field: &str, detail: &str) -> ApiProblem {
    ApiProblem::new(Code::QueryInvalid, detail).about(field)
}
