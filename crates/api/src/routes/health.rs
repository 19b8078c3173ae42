//! Health, for load balancers and people, and metrics, for scrapers: the routes without a token and outside of the document.

use axum::{
    Router,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::get,
};

use crate::{metrics, state::ApiState};

pub(super) fn router() -> Router<ApiState> {
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).route("/metrics", get(metrics::expose))
}

/// The process answers.
async fn livez() -> &'static str {
    "ok"
}

/// Requests can be served: the store answers. `?verbose` lists the checks.
async fn readyz(State(state): State<ApiState>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let answers = state.ready.get(async {
        let read = async { state.engine.store().read().await?.key_set_version().await };
        read.await.inspect_err(|error| tracing::warn!(%error, "the store does not answer")).is_ok()
    });
    let answers = answers.await;
    let verbose = query.is_some_and(|query| query.contains("verbose"));
    match answers {
        true if verbose => (StatusCode::OK, "[+]store ok\nreadyz check passed\n".to_owned()),
        true => (StatusCode::OK, "ok".to_owned()),
        // What exactly is wrong with it is in the log: anybody may ask here.
        false => (StatusCode::SERVICE_UNAVAILABLE, "[-]store failed\nreadyz check failed\n".to_owned()),
    }
}
