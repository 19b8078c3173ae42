//! Journals of members, streamed from their nodes.

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use gpuaas_api_types::LogLine;
use gpuaas_engine::{CommandError, commands::logs};
use gpuaas_model::{AuditAction, Code, Permission, Timestamp};
use gpuaas_wire::session::{JournalLine, JournalRequest};
use serde::Deserialize;
use utoipa::IntoParams;

use super::workloads::find;
use crate::{
    auth::Authenticated,
    declaration::{Declaration, declare},
    page::{Params, flag, seconds_ago},
    problem::ApiProblem,
    state::ApiState,
};

/// Number of last lines if the request gives neither a number nor a start.
const TAIL_DEFAULT: u32 = 100;
/// Largest number of last lines.
const TAIL_MAX: u32 = 10_000;
/// One JSON document per line.
const NDJSON: &str = "application/x-ndjson";

/// Selects lines of a journal.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogParams {
    /// Name or id of the workload's project. Defaults to the caller's project.
    project: Option<String>,
    /// One of the member's units. Defaults to its main unit.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    unit: Option<String>,
    /// Return lines of this many last seconds only.
    since_seconds: Option<u64>,
    /// Return this many last lines, at most 10,000. Defaults to 100 if `since_seconds` is absent.
    #[param(maximum = 10_000)]
    tail: Option<u32>,
    /// Continue with new lines.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    follow: bool,
}

declare! {
    read_logs: Declaration::reads(Permission::LogsRead, "workload logs").audited(AuditAction::LogsRead),
    [NotFound, FieldInvalid, QueryInvalid, NodeNotAllocated, NodeUnreachable]
}

/// Returns the journal of a member.
///
/// The response is text, or one JSON document per line with `Accept: application/x-ndjson`.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/members/{member}/logs", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), ("member" = String, Path, description = "for example agent-2"), LogParams),
    responses(
        (status = 200, content((String = "text/plain"), (LogLine = "application/x-ndjson")))
    )
)]
pub(crate) async fn read_logs(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    Path((key, member)): Path<(String, String)>,
    Params(params): Params<LogParams>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let ask = journal_request(&params, state.engine.ports().clock.now())?;
    let source = logs::open(&state.engine, &caller, id, &member, params.unit.as_deref()).await?;
    // Registers first, so that a release of the node while the journal is opened ends the stream.
    let held = state.engine.guard_access(&source.access).await.map_err(CommandError::from)?;
    let lines = state.journals.journal(&source.access, &JournalRequest { unit: source.unit, ..ask }).await?;
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let json = accept.contains(NDJSON);
    let media_type = if json { NDJSON } else { "text/plain; charset=utf-8" };
    let lines = state.streams.limit_to_token(&state.engine, caller.principal.token, held.guard(lines))?;
    let body = Body::from_stream(lines.map(move |line| line.map(|line| serialize(&line, json))));
    Ok(([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")], body).into_response())
}

fn journal_request(params: &LogParams, now: Timestamp) -> Result<JournalRequest, ApiProblem> {
    if params.tail.is_some_and(|tail| tail > TAIL_MAX) {
        return Err(ApiProblem::new(Code::QueryInvalid, format!("tail is at most {TAIL_MAX} lines")).about("tail"));
    }
    let since = params.since_seconds.map(|seconds| seconds_ago(now, seconds));
    let tail = params.tail.or_else(|| since.is_none().then_some(TAIL_DEFAULT));
    Ok(JournalRequest { unit: String::new(), since, tail, follow: params.follow })
}

fn serialize(line: &JournalLine, json: bool) -> Bytes {
    let at = line.at.to_string();
    if json {
        let line = LogLine { at, text: line.text.clone() };
        return Bytes::from(serde_json::to_string(&line).unwrap_or_default() + "\n");
    }
    Bytes::from(format!("{at} {}\n", line.text))
}
