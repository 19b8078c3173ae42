//! Comparisons of workloads with what was observed.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{NotKnown, WorkloadDiff};
use gpuaas_engine::commands::diff::{self, Comparison};

use super::workloads::{ProjectParams, find};
use crate::{
    auth::Authenticated, declaration::declare, page::Params, problem::ApiProblem, state::ApiState, views::difference,
};

declare! { diff_workload: reads(ProjectRead, "workload diff"), [NotFound, RateLimited] }

/// Compares a workload's desired state with what is observed.
///
/// Compares the members with their lifecycle, their nodes' connections and, of a running workload, what was last found on its nodes and what
/// its cluster shows at this moment, for at most 10 seconds. What cannot be asked is listed as unknown. Changes nothing.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/diff", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 200, body = WorkloadDiff))
)]
pub(crate) async fn diff_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
) -> Result<Json<WorkloadDiff>, ApiProblem> {
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    Ok(Json(shown(diff::compare(&state.engine, &caller, id).await?)))
}

fn shown(comparison: Comparison) -> WorkloadDiff {
    let Comparison { workload, operation, at, differences, unknown, not_compared } = comparison;
    WorkloadDiff {
        workload: workload.id.to_string(),
        workload_name: workload.name.to_string(),
        lifecycle: workload.lifecycle.to_string(),
        operation: operation.map(|operation| operation.id.to_string()),
        compared_at: at.to_string(),
        differences: differences.into_iter().map(difference).collect(),
        unknown: unknown.into_iter().map(not_known).collect(),
        not_compared,
    }
}

fn not_known(of: gpuaas_planner::Unknown) -> NotKnown {
    NotKnown { member: of.member, what: of.what, why: of.why, next: of.action.text, command: of.action.command }
}
