//! Limits concurrent responses to requests without a token (install script, packages, OpenAPI document), so that slow or stalled readers
//! hold little memory.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_model::Code;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    declared::operation_of,
    peer,
    problem::ApiProblem,
    shares::{RequestGuard, Share},
    state::ApiState,
};

/// Seconds after which a refused client may retry: about the duration of a package's download.
const RETRY_AFTER_SECONDS: u64 = 5;

/// Refuses a request that needs no token while too many of these responses are in progress.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let sender = peer::sender(&request).filter(|_| is_public(&request));
    let Some(from) = sender else { return next.run(request).await };
    match state.downloads.take(from.site()) {
        Ok(share) => next.run(request).await.map(|body| Body::new(Download::new(body, share))),
        Err(_) => refuse().into_response(),
    }
}

/// Returns whether the request needs no token. Requests without a route get a small response and count too.
fn is_public(request: &Request) -> bool {
    let declared = operation_of(request);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    reads && declared.is_none_or(|declared| declared.declaration.access.permission().is_none())
}

fn refuse() -> ApiProblem {
    let problem = ApiProblem::new(Code::RateLimited, "too many downloads without a token are in progress");
    problem.then(format!("try again after {RETRY_AFTER_SECONDS} s")).after(RETRY_AFTER_SECONDS)
}

/// The server ended the download in favor of an address that has fewer.
#[derive(Debug, thiserror::Error)]
#[error("the download was ended in favor of another address")]
struct Displaced;

/// A body that holds its share until it was read completely.
struct Download {
    body: Body,
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
    _begun: RequestGuard,
    _share: Share,
}

impl Download {
    fn new(body: Body, share: Share) -> Self {
        let displaced = Box::pin(share.displaced().clone().cancelled_owned());
        Self { body, displaced, _begun: share.activity().begin_request(), _share: share }
    }
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.displaced.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(Displaced))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
