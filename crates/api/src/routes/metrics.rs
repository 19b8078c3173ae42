//! `/metrics`: serves the counters of requests, and counts that each scrape reads from rows.

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use gpuaas_engine::{Caller, unsealed_audit_since};
use gpuaas_model::{Code, Connectivity, Health, Lifecycle, Permission};
use gpuaas_store::StoreError;
use metrics::{counter, gauge, with_local_recorder};

use crate::{
    auth, correlation,
    metrics::{
        CERTIFICATES, CHANGES, COMMITS, DAMAGED, FORGED, FREE_BYTES, NODES, OPERATIONS, STATEMENTS, TABLE_BYTES,
        TABLE_ROWS, UNSEALED, WORKLOADS,
    },
    peer::PeerAddress,
    problem::ApiProblem,
    state::ApiState,
};

/// Serves the metrics for a token with the permission. If the settings allow it, requests over loopback need no token. No tenant or object
/// is named.
pub(super) async fn expose(
    State(state): State<ApiState>,
    from: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let from = from.map(|Extension(from)| from);
    if !(state.metrics_over_loopback && from.is_some_and(PeerAddress::is_local)) {
        let principal = auth::principal(&headers, from, &state).await?;
        state.limits.count_caller(&principal)?;
        let caller = Caller {
            principal,
            correlation: correlation::current_id(&state.engine),
            is_dry_run: false,
            expected_plan: None,
            session: None,
        };
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
    let unsealed_since = unsealed_audit_since(&mut reader).await?;
    let now = state.engine.ports().clock.now();
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
        gauge!(UNSEALED).set(unsealed_since.map_or(0.0, |since| now.since(since).as_secs_f64()));
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
