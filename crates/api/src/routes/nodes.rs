//! Nodes.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use gpuaas_api_types::{Enrollment, FixNode, FixedNode, List, Node, Ping, RegisterNode, RegisteredNode};
use gpuaas_engine::commands::{fix, inspect, node, ping};
use gpuaas_model::Code;
use gpuaas_store::{NodeFilter, NodeRecord};
use gpuaas_trust::SecretText;
use serde::Deserialize;
use utoipa::IntoParams;

use super::projects::name;
use crate::{
    auth::Authenticated,
    body::Body,
    convert,
    etag::{Held, IfMatch},
    lookup,
    page::{PageParams, Params},
    problem::ApiProblem,
    shown_node,
    state::ApiState,
};

/// Which nodes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeParams {
    /// In this state.
    state: Option<String>,
    /// With this connectivity.
    connectivity: Option<String>,
    /// `next_cursor` of the page before.
    #[serde(default, deserialize_with = "crate::page::cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<String>,
    /// At most so many, up to 1,000.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

/// Nodes.
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "nodes", security(("token" = [])), params(NodeParams),
    extensions(
        ("x-permission" = json!("platform.read")), ("x-cli" = json!("node list")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["query_invalid"]))
    ),
    responses((status = 200, body = List<Node>))
)]
pub(crate) async fn list_nodes(
    State(state): State<ApiState>,
    Authenticated(_caller): Authenticated,
    Params(params): Params<NodeParams>,
) -> Result<Json<List<Node>>, ApiProblem> {
    let page = PageParams { cursor: params.cursor, limit: params.limit };
    let filter = NodeFilter {
        state: parsed(params.state.as_deref(), "state")?,
        connectivity: parsed(params.connectivity.as_deref(), "connectivity")?,
        page: page.page(),
    };
    let nodes = state.engine.store().read().await?.nodes(&filter).await?;
    let next_cursor = page.next_cursor(&nodes, |node| node.id.to_string());
    Ok(Json(List::new(nodes.into_iter().map(shown_node::node).collect(), next_cursor)))
}

/// Registers a machine; the answer holds the string that brings it in.
#[utoipa::path(
    post, path = "/api/v1/nodes", tag = "nodes", security(("token" = [])), request_body = RegisterNode,
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node register")), ("x-audit" = json!("node.register")), ("x-event" = json!("node.registered")),
        ("x-errors" = json!(["field_invalid", "name_taken"]))
    ),
    responses((status = 201, body = RegisteredNode))
)]
pub(crate) async fn register_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Body(ask): Body<RegisterNode>,
) -> Result<(StatusCode, Json<RegisteredNode>), ApiProblem> {
    let registered = node::register(&state.engine, &caller, name(&ask.name)?, ask.region, ask.labels).await?;
    Ok((StatusCode::CREATED, shown(&state, registered)))
}

/// A node.
#[utoipa::path(
    get, path = "/api/v1/nodes/{node}", tag = "nodes", security(("token" = [])), params(("node" = String, Path, description = "name or id")),
    extensions(
        ("x-permission" = json!("project.read")), ("x-cli" = json!("node show")), ("x-audit" = json!("none: read")), ("x-event" = json!("none: read")),
        ("x-errors" = json!(["not_found"]))
    ),
    responses((status = 200, body = Node, headers(("ETag" = String, description = "for `If-Match` and `If-None-Match`"))))
)]
pub(crate) async fn get_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    held: Held,
) -> Result<Response, ApiProblem> {
    let node = lookup::visible_node(&mut state.engine.store().read().await?, &caller, &key).await?;
    held.or_send((&node).into(), &shown_node::node(node))
}

/// Issues a new enrollment string; earlier ones of this node stop working.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/enrollment", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id")),
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node enroll")), ("x-audit" = json!("node.enrollment_create")), ("x-event" = json!("node.enrollment_issued")),
        ("x-errors" = json!(["not_found", "state_conflict", "precondition_failed"]))
    ),
    responses((status = 201, body = RegisteredNode))
)]
pub(crate) async fn issue_enrollment(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    IfMatch(seen): IfMatch,
) -> Result<(StatusCode, Json<RegisteredNode>), ApiProblem> {
    let id = find(&state, &key).await?.id;
    Ok((StatusCode::CREATED, shown(&state, node::issue_enrollment(&state.engine, &caller, id, &seen).await?)))
}

/// Sends a signed no-op and waits for its result.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/ping", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id")),
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node ping")), ("x-audit" = json!("node.ping")), ("x-event" = json!("task.changed")),
        ("x-errors" = json!(["not_found", "node_unreachable", "envelope_expired"]))
    ),
    responses((status = 200, body = Ping))
)]
pub(crate) async fn ping_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Ping>, ApiProblem> {
    let id = find(&state, &key).await?.id;
    let (task, round_trip) = ping::ping(&state.engine, &caller, id).await?;
    let round_trip_us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    Ok(Json(Ping { task: convert::task(task), round_trip_us }))
}

/// Has a node look at its machine and at whether it is fit, and waits for what it finds; measures how quickly writes reach its disk.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/inspect", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id")),
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node inspect")), ("x-audit" = json!("node.inspect")), ("x-event" = json!("node.inspected")),
        ("x-errors" = json!(["not_found", "state_conflict", "node_unreachable", "agent_too_old", "answer_invalid", "envelope_expired", "host_failed"]))
    ),
    responses((status = 200, body = Node))
)]
pub(crate) async fn inspect_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Node>, ApiProblem> {
    let id = find(&state, &key).await?.id;
    Ok(Json(shown_node::node(inspect::inspect(&state.engine, &caller, id).await?)))
}

/// Carries out one of the safe fixes on a node, and waits until it was looked at again.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/fix", tag = "nodes", security(("token" = [])), request_body = FixNode,
    params(("node" = String, Path, description = "name or id")),
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node fix")), ("x-audit" = json!("node.fix")), ("x-event" = json!("node.fixed")),
        ("x-errors" = json!(["not_found", "fix_unknown", "state_conflict", "node_unreachable", "agent_too_old", "answer_invalid", "envelope_expired", "host_failed"]))
    ),
    responses((status = 200, body = FixedNode))
)]
pub(crate) async fn fix_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    Body(ask): Body<FixNode>,
) -> Result<Json<FixedNode>, ApiProblem> {
    let id = find(&state, &key).await?.id;
    Ok(Json(shown_node::fixed(fix::fix(&state.engine, &caller, id, &ask.finding).await?)))
}

/// How a node is put back.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetParams {
    /// The caller vouches for the machine: it was reinstalled, or what is on it is known. Needed for a node that no tenant has left.
    #[serde(default, deserialize_with = "crate::page::flag")]
    #[param(value_type = Option<bool>)]
    vouched: bool,
}

/// Puts a node back to its beginning: its identity ends at once, and the answer holds the string that brings it in again. After a tenant that takes
/// a reimaged machine; of any other node the caller has to vouch for it.
#[utoipa::path(
    post, path = "/api/v1/nodes/{node}/reset", tag = "nodes", security(("token" = [])),
    params(("node" = String, Path, description = "name or id"), ResetParams),
    extensions(
        ("x-permission" = json!("nodes.write")), ("x-cli" = json!("node reset")), ("x-audit" = json!("node.reset")), ("x-event" = json!("node.state_changed")),
        ("x-errors" = json!(["not_found", "query_invalid", "state_conflict", "precondition_failed"]))
    ),
    responses((status = 200, body = RegisteredNode))
)]
pub(crate) async fn reset_node(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path(key): Path<String>,
    IfMatch(seen): IfMatch,
    Params(params): Params<ResetParams>,
) -> Result<Json<RegisteredNode>, ApiProblem> {
    let id = find(&state, &key).await?.id;
    Ok(shown(&state, node::reset(&state.engine, &caller, id, &seen, params.vouched).await?))
}

async fn find(state: &ApiState, key: &str) -> Result<NodeRecord, ApiProblem> {
    lookup::node(&mut state.engine.store().read().await?, key).await
}

fn shown(state: &ApiState, (record, string): (NodeRecord, SecretText)) -> Json<RegisteredNode> {
    let command = state.install.command(&state.engine.endpoints().api_url, &string);
    let enrollment = Enrollment { string: string.expose().to_owned(), command };
    Json(RegisteredNode { node: shown_node::node(record), enrollment })
}

/// A filter's word, if one was given.
pub(crate) fn parsed<T: std::str::FromStr<Err = String>>(
    text: Option<&str>,
    field: &str,
) -> Result<Option<T>, ApiProblem> {
    text.map(str::parse).transpose().map_err(|error| ApiProblem::new(Code::QueryInvalid, error).about(field))
}
