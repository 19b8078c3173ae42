//! Prometheus metrics: counters of requests, and counts that each scrape reads from rows.
//!
//! Each API has its own recorder, so that the metrics of two in one process do not mix.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::Caller;
use gpuaas_model::{Code, Connectivity, Health, Lifecycle, Permission};
use gpuaas_store::StoreError;
use metrics::{counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::{auth, correlation, peer::PeerAddress, problem::ApiProblem, state::ApiState};

const REQUESTS: &str = "gpuaas_http_requests_total";
const SECONDS: &str = "gpuaas_http_request_seconds";
const NODES: &str = "gpuaas_nodes";
const WORKLOADS: &str = "gpuaas_workloads";
const OPERATIONS: &str = "gpuaas_operations_open";
const CERTIFICATES: &str = "gpuaas_certificates_end_timestamp_seconds";
const FORGED: &str = "gpuaas_forged_rows_refused_total";
const STATEMENTS: &str = "gpuaas_store_statements_total";
const DAMAGED: &str = "gpuaas_store_damaged";
const CHANGES: &str = "gpuaas_store_changes_total";
const COMMITS: &str = "gpuaas_store_commits_total";
const TABLE_BYTES: &str = "gpuaas_store_table_bytes";
const TABLE_ROWS: &str = "gpuaas_store_table_rows";
const FREE_BYTES: &str = "gpuaas_store_free_bytes";
/// Upper bounds of the duration histogram, in seconds, around the limit of 0.5 s for a response.
const BUCKETS_SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The recorded metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Full(SECONDS.to_owned());
        let builder = builder.set_buckets_for_metric(seconds, BUCKETS_SECONDS).expect("BUCKETS_SECONDS is not empty");
        let recorder = builder.build_recorder();
        with_local_recorder(&recorder, || {
            metrics::describe_gauge!(CERTIFICATES, "Time at which the certificates of the listeners expire.");
            metrics::describe_counter!(REQUESTS, "Requests by route, method and status.");
            metrics::describe_histogram!(SECONDS, "Time until the response headers, by route and method.");
            metrics::describe_gauge!(NODES, "Nodes by connectivity.");
            metrics::describe_gauge!(WORKLOADS, "Workloads by lifecycle and health.");
            metrics::describe_gauge!(OPERATIONS, "Operations that have not ended.");
            metrics::describe_counter!(FORGED, "Rows that were refused because their authentication code is invalid.");
            metrics::describe_gauge!(
                DAMAGED,
                "1 after the database has reported damage of its files, until a restart."
            );
            metrics::describe_counter!(STATEMENTS, "SQL statements without begin, commit and rollback.");
            metrics::describe_counter!(CHANGES, "Changes of rows that were committed.");
            metrics::describe_gauge!(TABLE_BYTES, "Bytes of a table with its indexes, measured once a minute at most.");
            metrics::describe_gauge!(TABLE_ROWS, "Rows of a table; an estimate on PostgreSQL.");
            metrics::describe_gauge!(FREE_BYTES, "Free bytes in SQLite's file, reused for new rows.");
            metrics::describe_counter!(COMMITS, "Database commits. One commit may contain several changes.");
        });
        Self { handle: recorder.handle(), recorder: Arc::new(recorder) }
    }
}

/// Counts every response under the pattern of its route. The request's own path would create unbounded series.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let began = Instant::now();
    let response = next.run(request).await;
    let seconds = began.elapsed().as_secs_f64();
    let status = response.status().as_u16().to_string();
    with_local_recorder(&*state.metrics.recorder, || {
        histogram!(SECONDS, "route" => route.clone(), "method" => method).record(seconds);
        counter!(REQUESTS, "route" => route, "method" => method, "status" => status).increment(1);
    });
    response
}

/// Returns the name of a standard method, otherwise `other`, which bounds the number of series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => "other",
    }
}

/// Serves the metrics for a token with the permission. If the settings allow it, requests over loopback need no token. No tenant or object
/// is named.
pub(crate) async fn expose(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let from = from.map(|Extension(from)| from);
    if !(state.metrics_over_loopback && from.is_some_and(PeerAddress::is_local)) {
        let principal = auth::principal(&headers, from, &state).await?;
        state.limits.count_caller(&principal)?;
        let caller = Caller { principal, correlation: correlation::current_id(&state), is_dry_run: false };
        caller.require(Permission::MetricsRead)?;
    }
    let is_counted = state.row_counts.get(async {
        count_rows(&state).await.inspect_err(|error| tracing::warn!(%error, "rows could not be counted")).is_ok()
    });
    // If the database is damaged, the latest counts and that fact are better than an error.
    if !is_counted.await && state.engine.store().damage().is_none() {
        return Err(ApiProblem::new(Code::Unavailable, "the store does not respond").then("try again"));
    }
    count_store(&state);
    record_sizes(&state).await;
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, media_type)], state.metrics.handle.render()).into_response())
}

async fn count_rows(state: &ApiState) -> Result<(), StoreError> {
    let mut reader = state.engine.store().read().await?;
    let nodes = reader.node_counts().await?;
    let workloads = reader.workload_counts(None).await?;
    let open = reader.open_operation_count().await?;
    with_local_recorder(&*state.metrics.recorder, || {
        for &connectivity in Connectivity::ALL {
            let count = nodes.get(&connectivity).copied().unwrap_or(0);
            gauge!(NODES, "connectivity" => connectivity.as_str()).set(count as f64);
        }
        for (&lifecycle, &health) in Lifecycle::ALL.iter().flat_map(|of| Health::ALL.iter().map(move |is| (of, is))) {
            let count = workloads.get(&(lifecycle, health)).copied().unwrap_or(0);
            gauge!(WORKLOADS, "lifecycle" => lifecycle.as_str(), "health" => health.as_str()).set(count as f64);
        }
        gauge!(OPERATIONS).set(open as f64);
        gauge!(CERTIFICATES).set(state.certificates.get().as_millis() as f64 / 1_000.0);
        counter!(FORGED).absolute(state.engine.store().forged_rows_refused());
    });
    Ok(())
}

/// Reads the store's own counters. They are cheap, so they are not cached like the counts of rows.
fn count_store(state: &ApiState) {
    let counts = state.engine.store().counts();
    with_local_recorder(&*state.metrics.recorder, || {
        let is_damaged = state.engine.store().damage().is_some();
        gauge!(DAMAGED).set(f64::from(u8::from(is_damaged)));
        counter!(STATEMENTS).absolute(counts.statements);
        counter!(CHANGES).absolute(counts.changes);
        counter!(COMMITS).absolute(counts.commits);
    });
}

/// Sets the gauges of the latest measured table sizes.
async fn record_sizes(state: &ApiState) {
    let Some(size) = state.store_sizes.get(&state.engine).await else { return };
    with_local_recorder(&*state.metrics.recorder, || {
        for of in &size.tables {
            gauge!(TABLE_BYTES, "table" => of.table.clone()).set(of.bytes as f64);
            gauge!(TABLE_ROWS, "table" => of.table.clone()).set(of.rows as f64);
        }
        gauge!(FREE_BYTES).set(size.free_bytes as f64);
    });
}
