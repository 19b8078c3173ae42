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
    let store = async { state.engine.store().read().await?.projects().await };
    let check = store.await.map(|_| ());
    let verbose = query.is_some_and(|query| query.contains("verbose"));
    match check {
        Ok(()) if verbose => (StatusCode::OK, "[+]store ok\nreadyz check passed\n".to_owned()),
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("[-]store failed: {error}\nreadyz check failed\n")),
    }
}
