//! Workloads.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use gpuaas_api_types::{Deploy, List, PlannedMember, PlannedStep, Preview, Started, Waiting, Workload, WorkloadDetail};
use gpuaas_engine::{
    Caller, CommandError,
    commands::workload::{self, Accepted, GiveUp},
};
use gpuaas_model::{Code, Lifecycle, Name, OperationKind, ProjectId, WorkloadId};
use gpuaas_planner::{OutlinedMember, OutlinedStep, waiting::ControllerRow};
use gpuaas_store::{Page, Reader, WorkloadFilter, WorkloadRecord, WorkloadReportRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{member_names::members, projects::name};
use crate::{
    auth::Authenticated,
    body::Body,
    declaration::declare,
    etag::{IfMatch, IfNoneMatch},
    json::bounded,
    lookup,
    page::{PageParams, Params, ProjectPlanParams, expecting, flag, parsed},
    problem::ApiProblem,
    state::ApiState,
    views, waiting,
};

/// Project in which a name is looked up.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectParams {
    /// Name or id of the project. Defaults to the caller's project.
    pub(super) project: Option<String>,
}

/// Filters of workloads.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadParams {
    /// Name or id of the project.
    project: Option<String>,
    /// Lifecycle of the workload.
    lifecycle: Option<String>,
    /// Health of the workload.
    health: Option<String>,
    /// Slug of the app.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    app: Option<String>,
    /// Section: `needs_attention`, `active`, `stopped` or `history`.
    section: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_workloads: reads(ProjectRead, "workload list"), [NotFound, QueryInvalid] }

/// Lists workloads that the caller may see, with the number of workloads in each section.
#[utoipa::path(
    get, path = "/api/v1/workloads", tag = "workloads", security(("token" = [])), params(WorkloadParams),
    responses((status = 200, body = List<Workload>))
)]
pub(crate) async fn list_workloads(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<WorkloadParams>,
) -> Result<Json<List<Workload>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let project = lookup::listed_project(&mut reader, &caller, params.project.as_deref()).await?;
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter = WorkloadFilter {
        project,
        lifecycle: parsed(params.lifecycle.as_deref(), "lifecycle")?,
        health: parsed(params.health.as_deref(), "health")?,
        app: params.app,
        page: page.page(),
    };
    let (records, next_cursor) = match &params.section {
        Some(section) => section_page(&mut reader, filter, section).await?,
        None => {
            let records = reader.workloads(&filter).await?;
            let next_cursor = page.next_cursor(&records, |record| record.id.to_string());
            (records, next_cursor)
        }
    };
    let items = views::workloads(&mut reader, records, &state.engine).await?;
    Ok(Json(List::new(items, next_cursor).with_counts(counts(&mut reader, project).await?)))
}

/// Returns a page of one section. Rows do not store their section, so it reads until the page is full.
async fn section_page(
    reader: &mut Reader,
    mut filter: WorkloadFilter,
    section: &str,
) -> Result<(Vec<WorkloadRecord>, Option<String>), ApiProblem> {
    if !views::SECTIONS.contains(&section) {
        let detail = format!("{section:?} is none of {}", views::SECTIONS.join(", "));
        return Err(ApiProblem::new(Code::QueryInvalid, detail).about("section"));
    }
    let limit = filter.page.limit.unwrap_or(Page::LIMIT_MAX).clamp(1, Page::LIMIT_MAX) as usize;
    filter.page.limit = None;
    let mut found: Vec<WorkloadRecord> = Vec::new();
    loop {
        let read = reader.workloads(&filter).await?;
        let is_last = read.len() < Page::LIMIT_MAX as usize;
        filter.page.after = read.last().map(|record| record.id.to_string());
        let is_in =
            |record: &WorkloadRecord| views::section(record.lifecycle, record.health, Some(record.recovery)) == section;
        found.extend(read.into_iter().filter(is_in));
        if found.len() > limit {
            found.truncate(limit);
            let next_cursor = found.last().map(|record| record.id.to_string());
            return Ok((found, next_cursor));
        }
        if is_last {
            return Ok((found, None));
        }
    }
}

/// Returns the number of workloads in each section. The counts use lifecycle and health only, so a running, healthy workload that needs an
/// operator counts as active.
async fn counts(reader: &mut Reader, project: Option<ProjectId>) -> Result<BTreeMap<String, u64>, ApiProblem> {
    let mut counts: BTreeMap<String, u64> = views::SECTIONS.iter().map(|section| ((*section).to_owned(), 0)).collect();
    for ((lifecycle, health), count) in reader.workload_counts(project).await? {
        *counts.entry(views::section(lifecycle, health, None).to_owned()).or_default() += count;
    }
    Ok(counts)
}

declare! {
    deploy_workload: changes(WorkloadsWrite, "workload deploy", WorkloadDeploy, WorkloadRequested),
    [NotFound, FieldInvalid, NameTaken, StateConflict, PlacementInvalid, ServerRequired, AllocationRepeated,
        AllocationUnknown, AllocationInactive, AllocationUnreachable, AllocationBlocked, AllocationInUse, TooManyMembers, VersionUnknown,
        ConfigInvalid, AgentTooOld, PlanChanged]
}

/// Deploys an app.
///
/// A refusal names every reason and changes nothing. With `dry_run`, the response is 200 with the plan. With `plan_digest`, only the plan
/// with this digest runs.
#[utoipa::path(
    post, path = "/api/v1/workloads", tag = "workloads", security(("token" = [])), request_body = Deploy, params(ProjectPlanParams),
    responses(
        (status = 202, body = Started), (status = 200, body = Preview, description = "the plan")
    )
)]
pub(crate) async fn deploy_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<ProjectPlanParams>,
    Body(ask): Body<Deploy>,
) -> Result<Response, ApiProblem> {
    let caller = params.caller(caller)?;
    let project = {
        let mut reader = state.engine.store().read().await?;
        let named = ask.project.as_deref().or(params.project.as_deref());
        lookup::caller_project(&mut reader, &caller, named).await?
    };
    let deploy = workload::Deploy {
        project,
        app: ask.app,
        version: ask.version,
        name: name(&ask.name)?,
        intent: ask.placement,
        config: ask.config,
    };
    if params.dry_run {
        let drafted = workload::preview_deploy(&state.engine, &caller, deploy).await?;
        return Ok(Json(preview(&state, drafted)?).into_response());
    }
    let accepted = workload::deploy(&state.engine, &caller, deploy).await?;
    Ok(started(&state, accepted).await?.into_response())
}

declare! { get_workload: reads(WorkloadsRead, "workload show"), [NotFound, QueryInvalid] }

/// Returns a workload with its members.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectParams),
    responses((status = 200, body = WorkloadDetail, headers(("ETag" = String, description = "for `If-Match` and `If-None-Match`"))))
)]
pub(crate) async fn get_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectParams>,
    if_none_match: IfNoneMatch,
) -> Result<Response, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let record = lookup::workload(&mut reader, &caller, params.project.as_deref(), &key).await?;
    let members = members(&state, &mut reader, record.id).await?;
    let newest = reader.newest_operation(record.id).await?;
    let refused_actions = views::refused_actions(&record, newest.as_ref());
    let operation = newest.map(|operation| operation.id.to_string());
    let config = record.config.as_object().cloned().unwrap_or_default();
    let revision = (&record).into();
    let reported = reader.workload_report(record.id).await?;
    let controller_waiting = controller_waiting(&mut reader, &record, reported.as_ref()).await?;
    let controller = reported.map(|of| views::controller_report(of, record.reported.as_ref(), record.generation));
    let workload = views::workload(&mut reader, record, &state.engine).await?;
    let detail =
        WorkloadDetail { workload, config, members, operation, refused_actions, controller, controller_waiting };
    if_none_match.respond(revision, &detail)
}

/// Explains the wait for the workload's controller, if a service account controls the workload.
async fn controller_waiting(
    reader: &mut Reader,
    record: &WorkloadRecord,
    reported: Option<&WorkloadReportRecord>,
) -> Result<Option<Waiting>, ApiProblem> {
    if record.lifecycle == Lifecycle::Decommissioned {
        return Ok(None);
    }
    let accounts = reader.service_accounts(record.project, &Page::default()).await?;
    let Some(account) = accounts.iter().find(|account| account.workload == Some(record.id)) else { return Ok(None) };
    Ok(waiting::of_controller(&ControllerRow {
        account: account.name.as_str(),
        workload: record.name.as_str(),
        generation: record.generation,
        reported: reported.map(|last| last.generation),
        since: reported.map_or(account.created_at, |last| last.reported_at),
    }))
}

declare! {
    decommission_workload: changes(WorkloadsWrite, "workload decommission", WorkloadDecommission, OperationStarted),
    [NotFound, FieldInvalid, OperationInProgress, StateConflict, NothingToDo, MemberUnknown, PreconditionFailed, PlanChanged]
}

/// What a decommission may leave unproven, with the plan that the caller has seen.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecommissionParams {
    /// Name or id of the project in which a name is looked up. Defaults to the caller's project.
    project: Option<String>,
    /// Change nothing, and return the plan, or every reason against it.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    dry_run: bool,
    /// `digest` of the plan that a dry run returned. If another plan would run, the request is refused and changes nothing.
    #[param(pattern = "^plan-[0-9a-f]{32}$", example = "plan-9f86d081884c7d659a2feaa0c55ad015")]
    plan_digest: Option<String>,
    /// Names of unreachable nodes to give up, separated by commas; needs a `reason`.
    #[serde(default, deserialize_with = "crate::page::listed")]
    #[param(style = Form, explode = false, value_type = Option<Vec<String>>)]
    give_up: Vec<Name>,
    /// Give up every member whose removal the last decommission could not prove; needs a `reason`.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    force: bool,
    /// Reason for which something is given up, in one line of 1 to 500 printable characters. The audit keeps it.
    #[serde(default, deserialize_with = "crate::page::reason")]
    #[param(value_type = Option<String>)]
    reason: Option<String>,
}

/// Removes a workload from all its nodes.
///
/// The workload stays listed as history. It waits for unreachable nodes. `give_up` and `force` end members of which nothing shows that they
/// are removed; their nodes block deployments, and their allocations cannot be released, until they are known to be clean. With `dry_run`, the response is 200 with the plan. With `plan_digest`, only the plan with this
/// digest runs.
#[utoipa::path(
    delete, path = "/api/v1/workloads/{workload}", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), DecommissionParams),
    responses(
        (status = 202, body = Started), (status = 200, body = Preview, description = "the plan")
    )
)]
pub(crate) async fn decommission_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DecommissionParams>,
    IfMatch(seen): IfMatch,
) -> Result<Response, ApiProblem> {
    let caller = expecting(caller, params.plan_digest.as_deref())?;
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let nodes = params.give_up.iter().map(ToString::to_string).collect();
    let give_up = GiveUp { nodes, unproven: params.force, reason: params.reason };
    if params.dry_run {
        let drafted = workload::preview_giving_up(&state.engine, &caller, id, &seen, &give_up).await?;
        return Ok(Json(preview(&state, drafted)?).into_response());
    }
    let accepted = workload::decommission_giving_up(&state.engine, &caller, id, &seen, &give_up).await?;
    Ok(started(&state, accepted).await?.into_response())
}

declare! {
    resume_workload: changes(OperationsControl, "workload resume", WorkloadResume, OperationStarted),
    [NotFound, FieldInvalid, OperationInProgress, StateConflict, PreconditionFailed, PlanChanged]
}

/// Repeats the latest operation of a workload if it did not succeed.
///
/// The new operation has the same kind, and covers those members of the earlier one that are not removed. With `dry_run`, the response is
/// 200 with the plan. With `plan_digest`, only the plan with this digest runs.
#[utoipa::path(
    post, path = "/api/v1/workloads/{workload}/resume", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ProjectPlanParams),
    responses(
        (status = 202, body = Started), (status = 200, body = Preview, description = "the plan")
    )
)]
pub(crate) async fn resume_workload(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<ProjectPlanParams>,
    IfMatch(seen): IfMatch,
) -> Result<Response, ApiProblem> {
    let caller = params.caller(caller)?;
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    if params.dry_run {
        let drafted = workload::preview_resume(&state.engine, &caller, id, &seen).await?;
        return Ok(Json(preview(&state, drafted)?).into_response());
    }
    Ok(started(&state, workload::resume(&state.engine, &caller, id, &seen).await?).await?.into_response())
}

pub(super) async fn find(
    state: &ApiState,
    caller: &Caller,
    project: Option<&str>,
    key: &str,
) -> Result<WorkloadId, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    Ok(lookup::workload(&mut reader, caller, project, key).await?.id)
}

/// Finds a workload of the app that a request names. The app decides the shape of the request.
pub(super) async fn find_of_app(
    state: &ApiState,
    caller: &Caller,
    project: Option<&str>,
    key: &str,
    app: &str,
) -> Result<WorkloadId, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let found = lookup::workload(&mut reader, caller, project, key).await?;
    if found.app == app {
        return Ok(found.id);
    }
    let detail = format!("{} is a workload of the app {}, not of {:?}", found.name, found.app, bounded(app));
    Err(ApiProblem::new(Code::FieldInvalid, detail).about("app").then(format!("send app {}", found.app)))
}

pub(super) async fn started(state: &ApiState, accepted: Accepted) -> Result<(StatusCode, Json<Started>), ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let operation = views::operation(&mut reader, accepted.operation).await?;
    let workload = views::workload(&mut reader, accepted.workload, &state.engine).await?;
    Ok((StatusCode::ACCEPTED, Json(Started { workload, operation })))
}

/// Converts a preview.
pub(super) fn preview(state: &ApiState, drafted: workload::Preview) -> Result<Preview, ApiProblem> {
    let workload::Preview { placed, outline, digest, .. } = drafted;
    let app = state.engine.catalog().app(&outline.app).ok_or_else(|| CommandError::not_found("app", &outline.app))?;
    let manifest = app.app.manifest();
    // A removal promises nothing of the app.
    let is_removal = outline.kind == OperationKind::Decommission;
    let promises = |of: &[String]| if is_removal { Vec::new() } else { of.to_vec() };
    let interrupts = outline.interrupts();
    let added: Vec<String> =
        placed.into_iter().map(|placed| format!("{}-{}", placed.component_key, placed.ordinal)).collect();
    let is_listed = |member: &OutlinedMember| match outline.kind {
        // These create or remove all members that they are about.
        OperationKind::Deploy | OperationKind::AddMember | OperationKind::Decommission => true,
        OperationKind::DrainMember
        | OperationKind::UncordonMember
        | OperationKind::RemoveMember
        | OperationKind::ReplaceMember
        | OperationKind::Stop
        | OperationKind::Start
        | OperationKind::Reconcile
        | OperationKind::Repair
        | OperationKind::Upgrade
        | OperationKind::Snapshot
        | OperationKind::Restore
        | OperationKind::RotateCertificates => added.contains(&member.name),
    };
    Ok(Preview {
        kind: outline.kind.to_string(),
        members: outline.members.into_iter().filter(is_listed).map(planned_member).collect(),
        steps: outline.steps.into_iter().map(planned_step).collect(),
        promises: promises(&manifest.promises),
        not_promised: promises(&manifest.not_promised),
        digest: digest.to_string(),
        interrupts,
    })
}

fn planned_member(member: OutlinedMember) -> PlannedMember {
    PlannedMember {
        name: member.name,
        allocation: member.allocation.map(|id| id.to_string()),
        node: member.node.map(|id| id.to_string()),
        node_name: member.node_name.to_string(),
    }
}

fn planned_step(step: OutlinedStep) -> PlannedStep {
    PlannedStep {
        key: step.key.to_string(),
        phase: step.phase,
        needs: step.needs.iter().map(ToString::to_string).collect(),
        after: step.after.iter().map(ToString::to_string).collect(),
        deadline_ms: step.deadline_ms,
        member: step.member,
        node_name: step.node_name.map(|name| name.to_string()),
        does: step.does,
        interrupts: step.interrupts,
    }
}
