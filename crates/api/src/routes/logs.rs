//! Journals of members, streamed from their nodes, and the merged logs of workloads.

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use gpuaas_api_types::{LogLine, WorkloadLogLine};
use gpuaas_engine::{
    CommandError,
    commands::logs::{self, LogSelection},
};
use gpuaas_model::{AuditAction, Code, LogPosition, LogSource, Name, Permission, Timestamp};
use gpuaas_wire::session::{JournalLine, JournalRequest};
use serde::Deserialize;
use utoipa::IntoParams;

use super::workloads::find;
use crate::{
    auth::{Authenticated, OfSession},
    declaration::{Declaration, declare},
    page::{Params, flag, seconds_ago},
    problem::ApiProblem,
    state::ApiState,
    workload_logs::{self, LogRequest, Range},
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
    OfSession(session): OfSession,
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
    let json = wants_json(&headers);
    let lines = state.streams.limit_to_token(&state.engine, (caller.principal.token, session), held.guard(lines))?;
    Ok(streamed(Body::from_stream(lines.map(move |line| line.map(|line| serialize(&line, json)))), json))
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains(NDJSON))
}

fn streamed(body: Body, json: bool) -> Response {
    let media_type = if json { NDJSON } else { "text/plain; charset=utf-8" };
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

fn journal_request(params: &LogParams, now: Timestamp) -> Result<JournalRequest, ApiProblem> {
    check_tail(params.tail)?;
    let since = params.since_seconds.map(|seconds| seconds_ago(now, seconds));
    let tail = params.tail.or_else(|| since.is_none().then_some(TAIL_DEFAULT));
    Ok(JournalRequest { unit: String::new(), since, tail, follow: params.follow })
}

fn check_tail(tail: Option<u32>) -> Result<(), ApiProblem> {
    if tail.is_some_and(|tail| tail > TAIL_MAX) {
        return Err(ApiProblem::new(Code::QueryInvalid, format!("tail is at most {TAIL_MAX} lines")).about("tail"));
    }
    Ok(())
}

fn serialize(line: &JournalLine, json: bool) -> Bytes {
    let at = line.at.to_string();
    if json {
        let line = LogLine { at, text: line.text.clone() };
        return Bytes::from(serde_json::to_string(&line).unwrap_or_default() + "\n");
    }
    Bytes::from(format!("{at} {}\n", line.text))
}

/// Selects lines of a workload's logs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadLogParams {
    /// Name or id of the workload's project. Defaults to the caller's project.
    project: Option<String>,
    /// Names of the members whose journals are read, separated by commas. Defaults to all members, also those that are added while the
    /// logs are followed. At most 64 journals are read at once.
    #[serde(default, deserialize_with = "crate::page::listed")]
    #[param(style = Form, explode = false, value_type = Option<Vec<String>>)]
    member: Vec<Name>,
    /// The unit whose journal is read, of the members that have it. Defaults to the main unit of each.
    #[serde(default, deserialize_with = "crate::page::text")]
    #[param(value_type = Option<String>)]
    unit: Option<String>,
    /// The sources to read, separated by commas: `journal`, `task`, `event`. Defaults to all.
    #[serde(default, deserialize_with = "crate::page::listed")]
    #[param(style = Form, explode = false, value_type = Option<Vec<String>>)]
    source: Vec<LogSource>,
    /// Return lines at or after this time only.
    since: Option<String>,
    /// Return this many last lines of all sources together, at most 10,000. Defaults to 100 if `since`, `resume` and `after_event` are
    /// absent.
    #[param(maximum = 10_000)]
    tail: Option<u32>,
    /// Continue with new lines.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    follow: bool,
    /// Continue the journals of members after their last received lines: `MEMBER=POSITION`, separated by commas, with the `position` of
    /// that line. Other journals begin as without this parameter.
    #[serde(default, deserialize_with = "crate::page::listed")]
    #[param(style = Form, explode = false, value_type = Option<Vec<String>>)]
    resume: Vec<Resumed>,
    /// Continue the events after the one with this number, the `sequence` of the last received one.
    after_event: Option<u64>,
}

/// A member with a position in its journal.
#[derive(Debug)]
struct Resumed {
    member: String,
    position: LogPosition,
}

impl std::str::FromStr for Resumed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('=').and_then(|(member, at)| Some((member.parse::<Name>().ok()?, at.parse().ok()?)));
        let (member, position) = parts.ok_or_else(|| "an entry is not MEMBER=POSITION".to_owned())?;
        Ok(Self { member: member.to_string(), position })
    }
}

declare! {
    read_workload_logs: Declaration::reads(Permission::LogsRead, "workload logs").audited(AuditAction::LogsRead),
    [NotFound, FieldInvalid, QueryInvalid]
}

/// Returns the logs of a workload: journals of its members, output of its tasks and its events, merged by time.
///
/// A journal that cannot be read is reported as a line of the source `problem`; the others continue. A member that is slow delays the others by
/// 10 s at the beginning and by 200 ms per line later, at most. The response is text, or one JSON document per line with
/// `Accept: application/x-ndjson`.
#[utoipa::path(
    get, path = "/api/v1/workloads/{workload}/logs", tag = "workloads", security(("token" = [])),
    params(("workload" = String, Path, description = "name or id"), WorkloadLogParams),
    responses(
        (status = 200, content((String = "text/plain"), (WorkloadLogLine = "application/x-ndjson")))
    )
)]
pub(crate) async fn read_workload_logs(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    OfSession(session): OfSession,
    Path(key): Path<String>,
    Params(params): Params<WorkloadLogParams>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let id = find(&state, &caller, params.project.as_deref(), &key).await?;
    let (token, json) = (caller.principal.token, wants_json(&headers));
    let lines = workload_logs::open(&state, caller, id, log_request(params)?).await?;
    let lines = state.streams.limit_to_token(&state.engine, (token, session), lines)?;
    let body =
        Body::from_stream(lines.map(move |line| Ok::<_, std::convert::Infallible>(serialize_merged(&line, json))));
    Ok(streamed(body, json))
}

fn log_request(params: WorkloadLogParams) -> Result<LogRequest, ApiProblem> {
    check_tail(params.tail)?;
    let wrong = |_| {
        let detail = "since is not a time such as 2026-07-01T08:00:00Z";
        ApiProblem::new(Code::QueryInvalid, detail).about("since")
    };
    let since: Option<Timestamp> = params.since.as_deref().map(str::parse).transpose().map_err(wrong)?;
    let is_continued = since.is_some() || !params.resume.is_empty() || params.after_event.is_some();
    let tail = params.tail.or_else(|| (!is_continued).then_some(TAIL_DEFAULT));
    let sources = if params.source.is_empty() { LogSource::ALL.to_vec() } else { params.source };
    let members = params.member.iter().map(Name::to_string).collect();
    Ok(LogRequest {
        selection: LogSelection { members, unit: params.unit, sources },
        range: Range { since, tail, follow: params.follow },
        resume: params.resume.into_iter().map(|resumed| (resumed.member, resumed.position)).collect(),
        after_event: params.after_event,
    })
}

fn serialize_merged(line: &WorkloadLogLine, json: bool) -> Bytes {
    if json {
        return Bytes::from(serde_json::to_string(line).unwrap_or_default() + "\n");
    }
    let next = line.next.as_ref().map(|next| format!("; {next}")).unwrap_or_default();
    Bytes::from(format!("{} {}: {}{next}\n", line.at, line.origin(), line.text))
}
