//! Allocations.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use gpuaas_api_types::{Allocation, CreateAllocation, List};
use gpuaas_engine::commands::allocation;
use gpuaas_model::{AllocationState, Name, NodeId};
use gpuaas_store::{AllocationFilter, AllocationRecord, NodeRecord, Reader, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    etag::{IfMatch, IfNoneMatch},
    lookup,
    page::{DryRunParams, PageParams, Params, parsed},
    problem::ApiProblem,
    state::ApiState,
    waiting,
};

/// Filters of allocations.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AllocationParams {
    /// Name or id of the project.
    project: Option<String>,
    /// State of the allocation.
    state: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_allocations: reads(ProjectRead, "allocation list"), [NotFound, QueryInvalid] }

/// Lists allocations that the caller may see.
#[utoipa::path(
    get, path = "/api/v1/allocations", tag = "allocations", security(("token" = [])), params(AllocationParams),
    responses((status = 200, body = List<Allocation>))
)]
pub(crate) async fn list_allocations(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<AllocationParams>,
) -> Result<Json<List<Allocation>>, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let project = lookup::listed_project(&mut reader, &caller, params.project.as_deref()).await?;
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter =
        AllocationFilter { project, state: parsed(params.state.as_deref(), "state")?, node: None, page: page.page() };
    let records = reader.allocations(&filter).await?;
    let next_cursor = page.next_cursor(&records, |record| record.id.to_string());
    Ok(Json(List::new(all_shown(&mut reader, records).await?, next_cursor)))
}

declare! {
    create_allocation: changes(AllocationsWrite, "allocation create", AllocationCreate, AllocationChanged),
    [NotFound, NodeUnavailable]
}

/// Allocates a node to a project.
///
/// The allocation becomes usable after an inspection of the node.
#[utoipa::path(
    post, path = "/api/v1/allocations", tag = "allocations", security(("token" = [])), request_body = CreateAllocation,
    responses((status = 201, body = Allocation))
)]
pub(crate) async fn create_allocation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<CreateAllocation>,
) -> Result<(StatusCode, Json<Allocation>), ApiProblem> {
    let (project, node) = {
        let mut reader = state.engine.store().read().await?;
        let project = lookup::project(&mut reader, &caller, &ask.project).await?.id;
        (project, lookup::node(&mut reader, &caller, &ask.node).await?.id)
    };
    let created = allocation::create(&state.engine, &caller, project, node).await?;
    let shown = shown(&mut state.engine.store().read().await?, created).await?;
    Ok((StatusCode::CREATED, Json(shown)))
}

declare! { get_allocation: reads(ProjectRead, "allocation show"), [NotFound] }

/// Returns an allocation.
#[utoipa::path(
    get, path = "/api/v1/allocations/{id}", tag = "allocations", security(("token" = [])), params(("id" = String, Path, description = "id, or the name of the node")),
    responses((status = 200, body = Allocation, headers(("ETag" = String, description = "for `If-Match` and `If-None-Match`"))))
)]
pub(crate) async fn get_allocation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
    if_none_match: IfNoneMatch,
) -> Result<Response, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let id = lookup::allocation(&mut reader, &caller, &id).await?;
    let record = reader.allocation(id).await?;
    caller.require_visible(record.project, "allocation", id)?;
    let revision = (&record).into();
    if_none_match.respond(revision, &shown(&mut reader, record).await?)
}

declare! {
    release_allocation: changes(AllocationsWrite, "allocation release", AllocationRelease, AllocationChanged),
    [NotFound, AllocationInUse, AllocationUnproven, StateConflict, PreconditionFailed]
}

/// Releases an allocation.
///
/// The node's identity becomes invalid. The node must be reimaged before it is allocated again. Refused while nothing shows what a member
/// that was given up left on the node. With `dry_run`, nothing changes, and the
/// response is what it would be.
#[utoipa::path(
    delete, path = "/api/v1/allocations/{id}", tag = "allocations", security(("token" = [])),
    params(("id" = String, Path, description = "id, or the name of the node"), DryRunParams),
    responses((status = 200, body = Allocation))
)]
pub(crate) async fn release_allocation(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
    Params(params): Params<DryRunParams>,
    IfMatch(seen): IfMatch,
) -> Result<Json<Allocation>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = lookup::allocation(&mut state.engine.store().read().await?, &caller, &id).await?;
    let released = allocation::release(&state.engine, &caller, id, &seen).await?;
    Ok(Json(shown(&mut state.engine.store().read().await?, released).await?))
}

pub(super) async fn shown(reader: &mut Reader, record: AllocationRecord) -> Result<Allocation, ApiProblem> {
    let node = reader.node(record.node).await?;
    let projects = reader.project_names([record.project]).await?;
    let unknown = || StoreError::NotFound { what: "project", id: record.project.to_string() };
    let project = projects.get(&record.project).ok_or_else(unknown)?;
    let user = reader.allocation_user(record.id).await?;
    let waiting = waiting::of_allocation(&record, &node);
    Ok(convert::allocation(record, &node.name, project, user.as_ref(), waiting))
}

/// Converts allocations in their order, with one statement for each kind of related rows.
pub(super) async fn all_shown(
    reader: &mut Reader,
    records: Vec<AllocationRecord>,
) -> Result<Vec<Allocation>, StoreError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let names = reader.node_names(records.iter().map(|record| record.node)).await?;
    let is_changing = |record: &&AllocationRecord| record.state.holds_node() && record.state != AllocationState::Active;
    let changing: Vec<_> = records.iter().filter(is_changing).map(|record| record.node).collect();
    let nodes = reader.nodes_of_ids(changing).await?;
    all_shown_on(reader, records, &names, &nodes.into_values().collect::<Vec<_>>()).await
}

/// Like [`all_shown`], on nodes that are read already: `names` has all of them, and `nodes` at least those whose allocation is changing.
pub(super) async fn all_shown_on(
    reader: &mut Reader,
    records: Vec<AllocationRecord>,
    names: &BTreeMap<NodeId, Name>,
    nodes: &[NodeRecord],
) -> Result<Vec<Allocation>, StoreError> {
    let projects = reader.project_names(records.iter().map(|record| record.project)).await?;
    let ids: Vec<_> = records.iter().map(|record| record.id).collect();
    let users = reader.allocation_users(&ids).await?;
    let nodes: BTreeMap<NodeId, &NodeRecord> = nodes.iter().map(|node| (node.id, node)).collect();
    let shown = records.into_iter().map(|record| match (names.get(&record.node), projects.get(&record.project)) {
        (Some(name), Some(project)) => {
            let user = users.get(&record.id);
            let waiting = nodes.get(&record.node).and_then(|node| waiting::of_allocation(&record, node));
            Ok(convert::allocation(record, name, project, user, waiting))
        }
        (None, _) => Err(StoreError::NotFound { what: "node", id: record.node.to_string() }),
        (_, None) => Err(StoreError::NotFound { what: "project", id: record.project.to_string() }),
    });
    shown.collect()
}
