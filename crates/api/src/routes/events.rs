//! Events, as a list or as a stream that a client can resume.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use futures::{Stream, stream};
use gpuaas_api_types::{Event, List};
use gpuaas_engine::Caller;
use gpuaas_model::{Code, StreamName, WorkloadId};
use gpuaas_store::{Change, EventRecord, Reader, Store};
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use utoipa::IntoParams;

use crate::{
    auth::{Authenticated, OfSession},
    convert,
    declaration::declare,
    feeds::{Feed, SerializedEvent, workload_of},
    lookup,
    page::{Params, flag},
    problem::ApiProblem,
    state::ApiState,
};

/// Most events in one list.
const BATCH: u32 = 200;
/// Batches that one page of a single workload's events reads at most, of all events of its project.
const BATCHES_READ_MAX: usize = 10;
/// Interval of comments on an idle stream, so that proxies keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Filters of events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParams {
    /// Name or id of the project. Defaults to the caller's project; for platform roles to the platform's own events.
    project: Option<String>,
    /// Return events after this number. `Last-Event-ID` has the same effect on a stream.
    after: Option<u64>,
    /// Start a stream with the next new event.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = Option<bool>)]
    from_now: bool,
    /// Number of events per page: at most 200, which is the default. Larger values count as 200.
    #[serde(default, deserialize_with = "crate::page::limit")]
    #[param(value_type = Option<u32>)]
    limit: Option<u32>,
}

declare! { list_events: reads(WorkloadsRead, "event list"), [NotFound, QueryInvalid, EventsArchived] }

/// Lists events, oldest first.
///
/// A workload's controller gets those of its workload only: pages then have fewer events, and numbers have gaps.
/// Events of a project's tokens, service accounts and sessions say that one changed, and name neither holder nor role.
///
/// If `after` is absent or 0, the list begins with the oldest event in the database. With `Accept: text/event-stream`, the response is a
/// stream that continues until the token expires.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events", security(("token" = [])), params(EventParams),
    responses((status = 200, content((List<Event> = "application/json"), (String = "text/event-stream"))))
)]
pub(crate) async fn list_events(
    State(state): State<ApiState>,
    Authenticated(caller): Authenticated,
    OfSession(session): OfSession,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let stream = stream_of(&state, &caller, params.project.as_deref()).await?;
    let only = lookup::only_visible(&caller)?;
    let after = last_event_id(&headers)?.or(params.after).unwrap_or(0);
    if wants_stream(&headers) {
        // Subscribes before the first read, so that no commit in between is missed.
        let changes = state.engine.store().changes();
        let resumed = headers.contains_key("last-event-id");
        let after = if params.from_now && !resumed {
            state.engine.store().read().await?.last_sequence(stream).await?
        } else {
            after
        };
        let next = state.engine.store().read().await?.events(stream, after, 1).await?;
        refuse_removed(after, &next)?;
        let events = follow(&state, changes, (stream, only), after);
        let events = state.streams.limit_to_token(&state.engine, (caller.principal.token, session), events)?;
        return Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response());
    }
    let limit = params.limit.unwrap_or(BATCH).clamp(1, BATCH);
    let (events, next) = page(&mut state.engine.store().read().await?, (stream, only), after, limit).await?;
    let next_cursor = next.map(|sequence| sequence.to_string());
    Ok(Json(List::new(events.into_iter().map(convert::event).collect(), next_cursor)).into_response())
}

/// Returns at most `limit` events after a number, and the number to continue after if there may be more. Of a stream that is about other
/// workloads for long, the page is empty and not the last.
async fn page(
    reader: &mut Reader,
    (stream, only): (StreamName, Option<WorkloadId>),
    after: u64,
    limit: u32,
) -> Result<(Vec<EventRecord>, Option<u64>), ApiProblem> {
    let batch = if only.is_some() { BATCH } else { limit };
    let (mut found, mut last) = (Vec::new(), after);
    for _ in 0..BATCHES_READ_MAX {
        let read = reader.events(stream, last, batch).await?;
        refuse_removed(last, &read)?;
        let is_end = read.len() < batch as usize;
        for event in read {
            last = event.sequence;
            if only.is_none_or(|only| workload_of(&event) == Some(only)) {
                found.push(event);
            }
            if found.len() == limit as usize {
                return Ok((found, Some(last)));
            }
        }
        if is_end {
            return Ok((found, None));
        }
    }
    Ok((found, Some(last)))
}

/// Refuses to continue after a number whose next event was removed: numbers have no gaps. A request without a number begins with the oldest
/// event.
fn refuse_removed(after: u64, events: &[EventRecord]) -> Result<(), ApiProblem> {
    let Some(first) = events.first().map(|event| event.sequence).filter(|first| is_gap(after, *first)) else {
        return Ok(());
    };
    let detail = format!("events {} to {} were removed from the database; see the archives", after + 1, first - 1);
    Err(ApiProblem::new(Code::EventsArchived, detail).about("after").then(format!(
        "read the present state and continue after {}; see gpuaas archive list --kind events",
        first - 1
    )))
}

fn is_gap(after: u64, next: u64) -> bool {
    after > 0 && next > after + 1
}

async fn stream_of(state: &ApiState, caller: &Caller, project: Option<&str>) -> Result<StreamName, ApiProblem> {
    let project = lookup::listed_project(&mut state.engine.store().read().await?, caller, project).await?;
    Ok(project.map_or(StreamName::Platform, StreamName::Project))
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiProblem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|value| value.parse().ok());
    let wrong = || ApiProblem::new(Code::QueryInvalid, "Last-Event-ID is no event number").about("Last-Event-ID");
    number.map(Some).ok_or_else(wrong)
}

struct EventReader {
    feed: Arc<Feed>,
    store: Store,
    changes: Receiver<Change>,
    stream: StreamName,
    only: Option<WorkloadId>,
    after: u64,
    batch: std::vec::IntoIter<SerializedEvent>,
}

/// Streams the rows after `after`, then new ones: commits wake it, and it reads rows.
fn follow(
    state: &ApiState,
    changes: Receiver<Change>,
    (stream, only): (StreamName, Option<WorkloadId>),
    after: u64,
) -> impl Stream<Item = Result<SseEvent, Infallible>> + use<> {
    let (feed, store) = (state.feeds.of(stream), state.engine.store().clone());
    let reader = EventReader { feed, store, changes, stream, only, after, batch: Vec::new().into_iter() };
    stream::unfold(reader, |mut following| async move {
        let event = following.next().await?;
        Some((Ok(event), following))
    })
}

impl EventReader {
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(sent) = self.batch.next() {
                if is_gap(self.after, sent.sequence) {
                    // The reader is so slow that its next event was removed. The stream ends; the client's next request is refused with the
                    // reason.
                    return None;
                }
                self.after = sent.sequence;
                if self.only.is_some_and(|only| sent.workload != Some(only)) {
                    continue;
                }
                return Some(sent.event);
            }
            match self.feed.events_after(&self.store, self.after).await {
                Ok(batch) if batch.is_empty() => self.wait().await?,
                Ok(batch) => self.batch = batch.into_iter(),
                Err(error) => {
                    tracing::warn!(%error, "an event stream ends: its rows cannot be read");
                    return None;
                }
            }
        }
    }

    /// Waits for a commit to this stream. Missed notifications count as one.
    async fn wait(&mut self) -> Option<()> {
        loop {
            match self.changes.recv().await {
                Ok(Change::Event { stream, sequence }) if stream == self.stream && sequence > self.after => {
                    return Some(());
                }
                Ok(
                    Change::Event { .. }
                    | Change::Operation(_)
                    | Change::Node(_)
                    | Change::Token(_)
                    | Change::Keys
                    | Change::Sealing,
                ) => {}
                Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
