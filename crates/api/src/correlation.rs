//! The correlation id: accepted or made at the door, echoed, and known to whatever runs for the request.

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use gpuaas_model::CorrelationId;
use tracing::Instrument;

use crate::state::ApiState;

/// Carries the id in requests and answers.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("correlation-id");

tokio::task_local! {
    static CURRENT: CorrelationId;
}

/// The id of the request being answered; empty outside of one.
pub(crate) fn current() -> String {
    CURRENT.try_with(ToString::to_string).unwrap_or_default()
}

/// The id of the request being answered.
pub(crate) fn current_id(state: &ApiState) -> CorrelationId {
    CURRENT.try_with(|id| *id).unwrap_or_else(|_| fresh(state))
}

fn fresh(state: &ApiState) -> CorrelationId {
    CorrelationId::generate(&*state.engine.ports().clock, &*state.engine.ports().entropy)
}

/// The same future, which answers the request of that id.
pub(crate) fn within<F: Future>(id: CorrelationId, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, future)
}

/// Gives every request its id. One that a client sends must be a UUID; anything else is replaced.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let offered = request.headers().get(&HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
    let id = offered.unwrap_or_else(|| fresh(&state));
    let span =
        tracing::info_span!("request", correlation = %id, method = %request.method(), path = request.uri().path());
    let mut response = CURRENT.scope(id, next.run(request)).instrument(span).await;
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
