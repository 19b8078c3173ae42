//! Bodies: bounded in length, depth and time, JSON without repeated keys, refused with the field that is wrong.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body as RawBody, Bytes, HttpBody, to_bytes},
    extract::{FromRequest, MatchedPath, Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::future::BoxFuture;
use gpuaas_model::Code;
use http_body::{Frame, SizeHint};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

use crate::{document, json, problem::ApiProblem, state::ApiState};

/// Longest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1_024 * 1_024;
/// Longest time from a request's head to the end of its body.
const BODY_TIME_MAX: Duration = Duration::from_secs(20);

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Body<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, _: &ApiState) -> Result<Self, ApiProblem> {
        if !is_json(request.headers()) {
            return Err(ApiProblem::new(Code::MediaTypeUnsupported, "the body is not declared as JSON")
                .about("Content-Type")
                .then("send it with `Content-Type: application/json`"));
        }
        let bytes = read(request.into_body()).await?;
        json::read(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The whole of a body within [`BODY_BYTES_MAX`].
pub(crate) async fn read(body: RawBody) -> Result<Bytes, ApiProblem> {
    to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        let causes = || std::iter::successors(Some(&error as &dyn std::error::Error), |cause| cause.source());
        if causes().any(|cause| cause.is::<LengthLimitError>()) {
            return ApiProblem::new(Code::BodyTooLarge, format!("the body is longer than {BODY_BYTES_MAX} bytes"))
                .then("send less: nothing that the API takes is longer");
        }
        if causes().any(|cause| cause.is::<TooSlow>()) {
            let detail = format!("the body did not arrive within {} s", BODY_TIME_MAX.as_secs());
            return ApiProblem::new(Code::BodyTooSlow, detail).then("send it again, at once");
        }
        ApiProblem::new(Code::BodyInvalid, "the body broke off").then("send it again")
    })
}

/// An operation that takes no body refuses one that says something: whoever sent it expects what will not happen.
pub(crate) async fn refuse_unasked(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let declared = route.and_then(|route| document::declared(request.method(), route.as_str()));
    if declared.is_none_or(|declared| !declared.mutates || declared.takes_body) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match read(body).await.and_then(|bytes| json::must_say_nothing(&bytes)) {
        Ok(()) => next.run(Request::from_parts(parts, RawBody::empty())).await,
        Err(refused) => refused.into_response(),
    }
}

/// Gives every body its time.
pub(crate) async fn in_time(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let ports = state.engine.ports();
    let until = ports.runtime.sleep_until(ports.clock.now().plus(BODY_TIME_MAX));
    next.run(request.map(|body| RawBody::new(InTime { body, until }))).await
}

/// The body had not ended when its time had.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct TooSlow;

/// A body that fails when its time is over.
struct InTime {
    body: RawBody,
    until: BoxFuture<'static, ()>,
}

impl HttpBody for InTime {
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
