//! Health, for load balancers and people, without a token; and metrics, for scrapers: the routes outside of the document.

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

/// Requests can be served: the store answers and takes changes. `?verbose` lists the checks.
async fn readyz(State(state): State<ApiState>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let ready = state.ready.get(readiness(&state)).await;
    let verbose = query.is_some_and(|query| query.contains("verbose"));
    // What exactly is wrong is in the log: anybody may ask here.
    let (passed, checks) = match ready {
        Readiness::Ready if !verbose => return (StatusCode::OK, "ok".to_owned()),
        Readiness::Ready => (true, "[+]store ok\n[+]room ok\n"),
        Readiness::NoRoom => (false, "[+]store ok\n[-]room failed: the disk is full; reads are answered\n"),
        Readiness::NoStore => (false, "[-]store failed\n"),
    };
    let (status, verdict) = match passed {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    (status, format!("{checks}readyz check {verdict}\n"))
}

/// What can be served now.
#[derive(Clone, Copy)]
pub(crate) enum Readiness {
    Ready,
    /// The store answers and has no room for changes.
    NoRoom,
    NoStore,
}

async fn readiness(state: &ApiState) -> Readiness {
    let store = state.engine.store();
    let asked = async {
        store.read().await?.key_set_version().await?;
        store.takes_changes().await
    };
    match asked.await {
        Ok(true) => Readiness::Ready,
        Ok(false) => Readiness::NoRoom,
        Err(error) => {
            tracing::warn!(%error, "the store does not answer");
            Readiness::NoStore
        }
    }
}
