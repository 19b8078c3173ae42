//! The correlation id of a request: accepted or generated at the start, echoed in the response, and available to all code that runs for the
//! request.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use gpuaas_engine::Engine;
use gpuaas_model::CorrelationId;
use tracing::Instrument;

/// Header with the id, in requests and responses.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("correlation-id");

tokio::task_local! {
    static CURRENT: CorrelationId;
}

/// Returns the id of the current request; empty outside of a request.
pub(crate) fn current() -> String {
    CURRENT.try_with(ToString::to_string).unwrap_or_default()
}

/// Returns the id of the current request; a new one outside of a request.
pub(crate) fn current_id(engine: &Engine) -> CorrelationId {
    CURRENT.try_with(|id| *id).unwrap_or_else(|_| fresh(engine))
}

fn fresh(engine: &Engine) -> CorrelationId {
    CorrelationId::generate(&*engine.ports().clock, &*engine.ports().entropy)
}

/// Runs a future as part of the request with this id.
pub(crate) fn within<F: Future>(id: CorrelationId, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, future)
}

/// Assigns an id to every request. A UUID that the client sends is used, any other value is replaced.
pub(crate) async fn middleware(State(engine): State<Arc<Engine>>, request: Request, next: Next) -> Response {
    let offered = request.headers().get(&HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
    let id = offered.unwrap_or_else(|| fresh(&engine));
    let span =
        tracing::info_span!("request", correlation = %id, method = %request.method(), path = request.uri().path());
    let mut response = CURRENT.scope(id, next.run(request)).instrument(span).await;
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
