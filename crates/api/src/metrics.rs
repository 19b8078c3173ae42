//! Prometheus metrics, and the counters of requests. `routes/metrics.rs` reads the others at each scrape.
//!
//! Each API has its own recorder, so that the metrics of two in one process do not mix.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use metrics::{counter, histogram, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

const REQUESTS: &str = "gpuaas_http_requests_total";
const SECONDS: &str = "gpuaas_http_request_seconds";
pub(crate) const NODES: &str = "gpuaas_nodes";
pub(crate) const WORKLOADS: &str = "gpuaas_workloads";
pub(crate) const OPERATIONS: &str = "gpuaas_operations_open";
pub(crate) const CERTIFICATES: &str = "gpuaas_certificates_end_timestamp_seconds";
pub(crate) const FORGED: &str = "gpuaas_forged_rows_refused_total";
pub(crate) const UNSEALED: &str = "gpuaas_audit_unsealed_seconds";
pub(crate) const STATEMENTS: &str = "gpuaas_store_statements_total";
pub(crate) const DAMAGED: &str = "gpuaas_store_damaged";
pub(crate) const CHANGES: &str = "gpuaas_store_changes_total";
pub(crate) const COMMITS: &str = "gpuaas_store_commits_total";
pub(crate) const TABLE_BYTES: &str = "gpuaas_store_table_bytes";
pub(crate) const TABLE_ROWS: &str = "gpuaas_store_table_rows";
pub(crate) const FREE_BYTES: &str = "gpuaas_store_free_bytes";
/// Upper bounds of the duration histogram, in seconds, around the limit of 0.5 s for a response.
const BUCKETS_SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The recorded metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) recorder: Arc<PrometheusRecorder>,
    pub(crate) handle: PrometheusHandle,
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
            metrics::describe_gauge!(UNSEALED, "Age of the oldest audit record without a seal, 0 if there is none.");
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
pub(crate) async fn middleware(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let began = Instant::now();
    let response = next.run(request).await;
    let seconds = began.elapsed().as_secs_f64();
    let status = response.status().as_u16().to_string();
    with_local_recorder(&*metrics.recorder, || {
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
