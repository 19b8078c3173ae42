//! Reports of a workload's controller.

use axum::{
    Json,
    extract::{Path, State},
};
use gpuaas_api_types::{ReportAccepted, ReportWorkload};
use gpuaas_engine::commands::report;
use gpuaas_model::{Code, Progress};
use gpuaas_planner::report::{Report, ReportedMember};

use super::workloads::{ProjectParams, find};
use crate::{
    auth::Authenticated, body::Body, declaration::declare, json::bounded, page::Params, problem::ApiProblem,
    state::ApiState, views,
};

declare! {
    report_workload: changes(WorkloadsReport, "workload report", WorkloadReport, WorkloadReported),
    [NotFound, FieldInvalid, StateConflict, ReportStale]
}

/// Reports phase, progress and health of members, as the workload's controller.
///
/// Only a service account with the role `app-controller` reports, about its workload. An equal report changes nothing.
#[utoipa::path(
    put, path = "/api/v1/workloads/{workload}/report", tag = "workloads", security(("token" = [])), request_body = ReportWorkload,
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 200, body = ReportAccepted))
)]
pub(crate) async fn report_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
    Body(ask): Body<ReportWorkload>,
) -> Result<Json<ReportAccepted>, ApiProblem> {
    let report = read(ask)?;
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let accepted = report::report(&state.engine, &caller, id, &report).await?;
    let generation = accepted.record.generation;
    Ok(Json(ReportAccepted {
        report: views::controller_report(accepted.record, Some(&accepted.status), generation),
        changed: accepted.is_changed,
        not_applied: accepted.not_applied,
    }))
}

fn read(ask: ReportWorkload) -> Result<Report, ApiProblem> {
    let members = ask.members.into_iter().enumerate().map(|(index, said)| {
        let health = said.health.parse().map_err(|_| {
            ApiProblem::new(Code::FieldInvalid, format!("there is no health {:?}", bounded(&said.health)))
                .about(format!("members[{index}].health"))
                .then("use progressing, healthy, degraded or failed")
        })?;
        let (code, message, evidence) = (said.code, said.message, said.evidence);
        Ok(ReportedMember { member: said.member, health, code, message, evidence })
    });
    Ok(Report {
        generation: ask.generation,
        sequence: ask.sequence,
        phase: ask.phase,
        progress: ask.progress.map(|of| Progress { completed: of.completed, total: of.total }),
        members: members.collect::<Result<_, ApiProblem>>()?,
    })
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Coded, Health};
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_read_and_an_unknown_health_names_its_field() {
        let of = |health: &str| {
            let members =
                json!([{ "member": "server-1", "health": "healthy" }, { "member": "agent-1", "health": health }]);
            let ask = json!({ "generation": 2, "progress": { "completed": 1, "total": 2 }, "members": members });
            read(serde_json::from_value(ask).unwrap())
        };
        let report = of("degraded").unwrap_or_else(|_| panic!("it is valid"));
        assert_eq!((report.generation, report.sequence, report.phase), (2, None, None));
        assert_eq!(report.progress, Some(Progress { completed: 1, total: 2 }));
        assert_eq!(report.members[1].health, Health::Degraded);
        let Err(refused) = of("fine") else { panic!("it is refused") };
        let cause = refused.cause();
        assert_eq!((cause.code(), cause.field().as_deref()), (Code::FieldInvalid, Some("members[1].health")));
        assert!(cause.next().is_some());
    }
}
