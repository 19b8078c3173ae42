//! Request bodies: limited in length, memory, depth and time; JSON without duplicate keys. A refusal names the field at fault.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body as RawBody, Bytes, HttpBody},
    extract::{FromRequest, Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::future::BoxFuture;
use gpuaas_model::Code;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::{
    body_budget::Reservation, declared::operation_of, json, naming_body::NamingBody, problem::ApiProblem,
    state::ApiState,
};

/// Longest time from a request's head to the end of its body.
const BODY_TIME_MAX: Duration = Duration::from_secs(20);

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Body<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiProblem> {
        if !is_json(request.headers()) {
            return Err(ApiProblem::new(Code::MediaTypeUnsupported, "the body is not declared as JSON")
                .about("Content-Type")
                .then("send it with `Content-Type: application/json`"));
        }
        let reservation = state.bodies.reserve(request.extensions());
        let naming = request.extensions().get::<NamingBody>().cloned();
        let bytes = read(request.into_body(), reservation).await?;
        if let Some(NamingBody(body)) = naming {
            // Empty before: a request has one body.
            let _ = body.set(bytes.clone());
        }
        json::read(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads the body of a request that is refused before its handler: the audit record names what was attempted. If it cannot be read, the
/// record does without it.
pub(crate) async fn keep_refused(state: &ApiState, request: Request) {
    let Some(NamingBody(kept)) = request.extensions().get::<NamingBody>().cloned() else { return };
    let reservation = state.bodies.reserve(request.extensions());
    if let Ok(bytes) = read(request.into_body(), reservation).await {
        // Empty before: a request has one body.
        let _ = kept.set(bytes);
    }
}

/// Reads a whole body within the limits of `reservation`. Dropping the last clone of the result releases the memory.
pub(crate) async fn read(mut body: RawBody, reservation: Reservation) -> Result<Bytes, ApiProblem> {
    // A body whose announced length is over the limit is not read.
    if body.size_hint().lower() > reservation.bytes_max() as u64 {
        return Err(reservation.too_long());
    }
    let mut collected = Collected { bytes: Vec::new(), reservation };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| read_error(&error))?.into_data() else { continue };
        collected.reservation.add(data.len())?;
        // Copied, because a frame keeps the whole buffer from which it was cut.
        collected.bytes.extend_from_slice(&data);
    }
    Ok(Bytes::from_owner(collected))
}

/// The received part of a body, with the memory that it holds.
struct Collected {
    bytes: Vec<u8>,
    reservation: Reservation,
}

impl AsRef<[u8]> for Collected {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn read_error(error: &axum::Error) -> ApiProblem {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    if causes.any(|cause| cause.is::<TooSlow>()) {
        let detail = format!("the body did not arrive within {} s", BODY_TIME_MAX.as_secs());
        return ApiProblem::new(Code::BodyTooSlow, detail).then("send it again without pauses");
    }
    ApiProblem::new(Code::BodyInvalid, "the body ended early").then("send it again")
}

/// Refuses a body with content if the operation takes none: the sender expects an effect that would not happen.
pub(crate) async fn refuse_unexpected(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let declared = operation_of(&request);
    if declared.is_none_or(|declared| !declared.mutates || declared.takes_body) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match read(body, state.bodies.reserve(&parts.extensions)).await.and_then(|bytes| json::check_empty(&bytes)) {
        Ok(()) => next.run(Request::from_parts(parts, RawBody::empty())).await,
        Err(refused) => refused.into_response(),
    }
}

/// Applies the time limit to every body.
pub(crate) async fn limit_time(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let ports = state.engine.ports();
    let until = ports.runtime.sleep_until(ports.clock.now().plus(BODY_TIME_MAX));
    next.run(request.map(|body| RawBody::new(TimeLimited { body, until }))).await
}

/// The body did not end within the time limit.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct TooSlow;

/// A body that fails when the time limit is reached.
struct TimeLimited {
    body: RawBody,
    until: BoxFuture<'static, ()>,
}

impl HttpBody for TimeLimited {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        self.until.as_mut().poll(context).map(|()| Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
