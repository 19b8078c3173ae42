//! Nodes.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use gpuaas_api_types::{
    Allocation, EnrollNode, Enrollment, FixNode, FixedNode, List, Node, Ping, RegisterNode, RegisteredNode,
};
use gpuaas_engine::{
    Caller, CommandError,
    commands::{
        fix, inspect,
        node::{self, Forced},
        node_removal, ping, reimage,
    },
    ownership::VisibleNode,
};
use gpuaas_model::{Code, NodeState};
use gpuaas_store::{EnrollmentRecord, NodeFilter, NodeRecord, Reader};
use gpuaas_trust::SecretText;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{allocations, projects::name};
use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    declaration::declare,
    etag::{IfMatch, IfNoneMatch},
    lookup, node_views,
    page::{DryRunParams, PageParams, Params, parsed},
    problem::ApiProblem,
    state::ApiState,
    waiting,
};

/// Filters of nodes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeParams {
    /// State of the node.
    state: Option<String>,
    /// Connectivity of the node.
    connectivity: Option<String>,
    /// `next_cursor` of the previous page.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// Number of entries per page: 1 to 1,000, 1,000 by default.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_nodes: reads(PlatformRead, "node list"), [QueryInvalid] }

/// Lists nodes.
///
/// `counts` has the number of all nodes by connectivity.
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "nodes", security(("token" = [])), params(NodeParams),
    responses((status = 200, body = List<Node>))
)]
pub(crate) async fn list_nodes(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Params(params): Params<NodeParams>,
) -> Result<Json<List<Node>>, ApiProblem> {
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter = NodeFilter {
        state: parsed(params.state.as_deref(), "state")?,
        connectivity: parsed(params.connectivity.as_deref(), "connectivity")?,
        page: page.page(),
    };
    let mut reader = state.engine.store().read().await?;
    let nodes = reader.nodes(&filter).await?;
    let next_cursor = page.next_cursor(&nodes, |node| node.id.to_string());
    let awaited: Vec<_> = nodes.iter().filter(|node| awaits_enrollment(node)).map(|node| node.id).collect();
    let unused = reader.redeemable_enrollments(awaited, state.engine.ports().clock.now()).await?;
    let mut held = held(&mut reader, &caller, &nodes).await?;
    let shown = nodes.into_iter().map(|node| {
        let (id, enrollment) = (node.id.to_string(), unused.get(&node.id));
        let shown = node_views::node(VisibleNode::of_platform(&caller, node)?, enrollment);
        Ok(Node { allocation: held.remove(&id), ..shown })
    });
    let shown = List::new(shown.collect::<Result<_, CommandError>>()?, next_cursor);
    let counts = reader.node_counts().await?;
    Ok(Json(shown.with_counts(counts.into_iter().map(|(of, count)| (of.to_string(), count)).collect())))
}

/// Returns the allocations by which projects that the caller may see hold these nodes, by the node's id.
async fn held(
    reader: &mut Reader,
    caller: &Caller,
    nodes: &[NodeRecord],
) -> Result<BTreeMap<String, Allocation>, ApiProblem> {
    let mut open = reader.open_allocations_of(nodes.iter().map(|node| node.id)).await?;
    open.retain(|allocation| caller.principal.sees(allocation.project));
    if open.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names = nodes.iter().map(|node| (node.id, node.name.clone())).collect();
    let shown = allocations::all_shown_on(reader, open, &names, nodes).await?;
    Ok(shown.into_iter().map(|allocation| (allocation.node.clone(), allocation)).collect())
}

declare! {
    register_node: changes(NodesWrite, "node register", NodeRegister, NodeRegistered),
    [FieldInvalid, NameTaken]
}

/// Registers a machine.
///
/// The response contains the enrollment string.
#[utoipa::path(
    post, path = "/api/v1/nodes", tag = "nodes", security(("token" = [])), request_body = RegisterNode,
    responses((status = 201, body = RegisteredNode))
)]
pub(crate) async fn register_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<RegisterNode>,
) -> Result<(StatusCode, Json<RegisteredNode>), ApiProblem> {
    let registered = node::register(&state.engine, &caller, name(&ask.name)?, ask.region, ask.labels).await?;
    Ok((StatusCode::CREATED, shown(&state, &caller, registered).await?))
}

declare! { get_node: reads(ProjectRead, "node show"), [NotFound] }

/// Returns a node.
#[utoipa::path(
    get, path = "/api/v1/nodes/{node}", tag = "nodes", security(("token" = [])), params(("node" = String, Path, description = "name or id")),
    responses((status = 200, body = Node, headers(("ETag" = String, description = "for `If-Match` and `If-None-Match`"))))
)]
pub(crate) async fn get_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    if_none_match: IfNoneMatch,
) -> Result<Response, ApiProblem> {
    let mut reader = state.engine.store().read().await?;
    let node = lookup::visible_node(&mut reader, &caller, &key).await?;
    let revision = node.record().into();
    let allocation = match reader.open_allocation_of(node.record().id).await? {
        Some(held) if caller.principal.sees(held.project) => Some(allocations::shown(&mut reader, held).await?),
        Some(_) | None => None,
    };
    let enrollment = enrollment(&state, &mut reader, node.record()).await?;
    if_none_match.respond(revision, &Node { allocation, ..node_views::node(node, enrollment.as_ref()) })
}

declare! {
    issue_enrollment: changes(NodesWrite, "node enroll", NodeEnrollmentCreate, NodeEnrollmentIssued),
    [NotFound, FieldInvalid, StateConflict, PreconditionFailed]
}

/// Issues a new enrollment string.
///
/// Earlier strings of the node become invalid.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/enrollment", tag = "nodes", security(("token" = [])), request_body = EnrollNode,
    params(("node" = String, Path, description = "name or id")),
    responses((status = 201, body = RegisteredNode))
)]
pub(crate) async fn issue_enrollment(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    IfMatch(seen): IfMatch,
    Body(ask): Body<EnrollNode>,
) -> Result<(StatusCode, Json<RegisteredNode>), ApiProblem> {
    let (id, forced) = (find(&state, &caller, &key).await?.id, forced(ask)?);
    let issued = node::issue_enrollment(&state.engine, &caller, id, &seen, forced.as_ref()).await?;
    Ok((StatusCode::CREATED, shown(&state, &caller, issued).await?))
}

declare! {
    ping_node: changes(NodesWrite, "node ping", NodePing, TaskChanged),
    [NotFound, StateConflict, NodeUnreachable, NodeBusy, AgentTooOld, TaskResultInvalid, EnvelopeExpired, HostFailed]
}

/// Sends a signed no-op task and waits for its result.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/ping", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id")),
    responses((status = 200, body = Ping))
)]
pub(crate) async fn ping_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Ping>, ApiProblem> {
    let node = find(&state, &caller, &key).await?;
    let (task, round_trip) = ping::ping(&state.engine, &caller, node.id).await?;
    let round_trip_us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    let waiting = waiting::of_task(&task, &node, None);
    Ok(Json(Ping { task: convert::task(task, &node.name, waiting), round_trip_us }))
}

declare! {
    inspect_node: changes(NodesWrite, "node inspect", NodeInspect, NodeInspected),
    [NotFound, StateConflict, NodeUnreachable, NodeBusy, AgentTooOld, TaskResultInvalid, EnvelopeExpired, HostFailed]
}

/// Inspects a node and waits for the result.
///
/// The agent reports facts of the machine, runs the preflight checks and measures the write latency of the disk.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/inspect", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id")),
    responses((status = 200, body = Node))
)]
pub(crate) async fn inspect_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Node>, ApiProblem> {
    let id = find(&state, &caller, &key).await?.id;
    let node = inspect::inspect(&state.engine, &caller, id).await?;
    Ok(Json(viewed(&state, &caller, node).await?))
}

declare! {
    fix_node: changes(NodesWrite, "node fix", NodeFix, NodeFixed),
    [NotFound, FixUnknown, StateConflict, NodeUnreachable, NodeBusy, AgentTooOld, TaskResultInvalid, EnvelopeExpired,
        HostFailed]
}

/// Applies a safe fix on a node.
///
/// The response is sent after a new inspection of the node.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/fix", tag = "nodes", security(("token" = [])), request_body = FixNode,
    params(("node" = String, Path, description = "name or id")),
    responses((status = 200, body = FixedNode))
)]
pub(crate) async fn fix_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Body(ask): Body<FixNode>,
) -> Result<Json<FixedNode>, ApiProblem> {
    let id = find(&state, &caller, &key).await?.id;
    Ok(Json(node_views::fixed(&caller, fix::fix(&state.engine, &caller, id, &ask.finding).await?)?))
}

declare! {
    reset_node: changes(NodesWrite, "node reset", NodeReset, NodeStateChanged),
    [NotFound, FieldInvalid, AllocationInUse, StateConflict, PreconditionFailed]
}

/// Resets a node.
///
/// The node's identity becomes invalid immediately. The response contains a new enrollment string. After a tenant used the machine, it must
/// be reimaged before it enrolls, unless the reset is forced. A node in any other state is only reset by force. With `dry_run`, nothing
/// changes, and the response is what it would be, without a string.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/reset", tag = "nodes", security(("token" = [])), request_body = EnrollNode,
    params(("node" = String, Path, description = "name or id"), DryRunParams),
    responses((status = 200, body = RegisteredNode))
)]
pub(crate) async fn reset_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
    IfMatch(seen): IfMatch,
    Body(ask): Body<EnrollNode>,
) -> Result<Json<RegisteredNode>, ApiProblem> {
    let (id, forced) = (find(&state, &caller, &key).await?.id, forced(ask)?);
    let caller = caller.with_dry_run(params.dry_run);
    shown(&state, &caller, node::reset(&state.engine, &caller, id, &seen, forced.as_ref()).await?).await
}

declare! {
    reimage_node: changes(NodesWrite, "node reimage", NodeReimage, NodeStateChanged),
    [NotFound, StateConflict, PreconditionFailed, ReimageHookMissing, ReimageHookFailed]
}

/// Passes a node that a tenant left to the reimage hook, with a new enrollment string.
///
/// The response is sent after the hook has accepted the node. With `dry_run`, the hook does not run, nothing changes, and the response is
/// what it would be.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/reimage", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id"), DryRunParams),
    responses((status = 200, body = Node))
)]
pub(crate) async fn reimage_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
    IfMatch(seen): IfMatch,
) -> Result<Json<Node>, ApiProblem> {
    let id = find(&state, &caller, &key).await?.id;
    let caller = caller.with_dry_run(params.dry_run);
    let node = reimage::reimage(&state.engine, &caller, id, &seen).await?;
    Ok(Json(viewed(&state, &caller, node).await?))
}

declare! {
    retire_node: changes(NodesWrite, "node retire", NodeRetire, NodeStateChanged),
    [NotFound, AllocationInUse, StateConflict, PreconditionFailed]
}

/// Removes a node from use permanently.
///
/// The node's identity becomes invalid immediately. No project may hold the node. With `dry_run`, nothing changes.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/retire", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id"), DryRunParams),
    responses((status = 200, body = Node))
)]
pub(crate) async fn retire_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
    IfMatch(seen): IfMatch,
) -> Result<Json<Node>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = find(&state, &caller, &key).await?.id;
    let node = node_removal::retire(&state.engine, &caller, id, &seen).await?;
    Ok(Json(viewed(&state, &caller, node).await?))
}

declare! {
    delete_node: changes(NodesWrite, "node delete", NodeDelete, NodeDeleted),
    [NotFound, AllocationInUse, StateConflict, PreconditionFailed]
}

/// Deletes a retired node.
///
/// Its name can be used again. History keeps referring to it. With `dry_run`, nothing changes.
#[utoipa::path(
    delete, path = "/api/v1/nodes/{node}", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id"), DryRunParams),
    responses((status = 200, body = Node))
)]
pub(crate) async fn delete_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Params(params): Params<DryRunParams>,
    IfMatch(seen): IfMatch,
) -> Result<Json<Node>, ApiProblem> {
    let caller = caller.with_dry_run(params.dry_run);
    let id = find(&state, &caller, &key).await?.id;
    let node = node_removal::delete(&state.engine, &caller, id, &seen).await?;
    Ok(Json(viewed(&state, &caller, node).await?))
}

/// Returns the reason of a forced request; refuses a reason without force.
fn forced(ask: EnrollNode) -> Result<Option<Forced>, ApiProblem> {
    match (ask.force, ask.reason) {
        (true, reason) => Ok(Some(Forced { reason: reason.unwrap_or_default() })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(ApiProblem::new(Code::FieldInvalid, "the request has a reason, but no force")
            .about("reason")
            .then("set force to true, or omit the reason")),
    }
}

async fn find(state: &ApiState, caller: &Caller, key: &str) -> Result<NodeRecord, ApiProblem> {
    lookup::node(&mut state.engine.store().read().await?, caller, key).await
}

/// Returns true if a machine must or may enroll as this node.
const fn awaits_enrollment(node: &NodeRecord) -> bool {
    match node.state {
        NodeState::Registered | NodeState::Enrolled => true,
        NodeState::Active | NodeState::NeedsReimage | NodeState::Retired => false,
    }
}

/// Returns the enrollment string with which a machine can enroll as this node now.
async fn enrollment(
    state: &ApiState,
    reader: &mut Reader,
    node: &NodeRecord,
) -> Result<Option<EnrollmentRecord>, ApiProblem> {
    if !awaits_enrollment(node) {
        return Ok(None);
    }
    let mut unused = reader.redeemable_enrollments([node.id], state.engine.ports().clock.now()).await?;
    Ok(unused.remove(&node.id))
}

/// Converts a node after a change.
async fn viewed(state: &ApiState, caller: &Caller, record: NodeRecord) -> Result<Node, ApiProblem> {
    let enrollment = enrollment(state, &mut state.engine.store().read().await?, &record).await?;
    Ok(node_views::node(VisibleNode::of_platform(caller, record)?, enrollment.as_ref()))
}

async fn shown(
    state: &ApiState,
    caller: &Caller,
    (record, string): (NodeRecord, SecretText),
) -> Result<Json<RegisteredNode>, ApiProblem> {
    let enrollment = if caller.is_dry_run {
        Enrollment::default()
    } else {
        let command = state.install.command(&state.engine.endpoints().api_url, &string);
        Enrollment { string: string.expose().to_owned(), command }
    };
    let node = viewed(state, caller, record).await?;
    Ok(Json(RegisteredNode { node, enrollment }))
}
