//! Drains the rest of a request that is refused early.
//!
//! An HTTP/1 client writes its body before it reads the response. Closing a connection with unread bytes resets it, and the reset can
//! discard the response: the client sees a broken pipe instead of the problem. So the rest is read and discarded, within bounds. A client
//! that sent `Expect: 100-continue` and got no `100 Continue` has sent no body, so nothing is read. HTTP/2 ends a single stream without
//! affecting others.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Version, header},
    middleware::Next,
    response::Response,
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::state::ApiState;

/// Most bytes that are drained from a refused request.
const BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Longest time of draining.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Drains the rest of a refused request before it sends the response.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = SharedBody(Arc::new(Mutex::new(Shared { body, was_polled: false })));
    let mut response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    // A body that was too slow gets no more time: the connection closes after the response.
    if response.status() == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    } else if !response.status().is_success() && (body.was_polled() || !expects_continue) {
        let ports = state.engine.ports();
        tokio::select! {
            () = drain(body) => {}
            () = ports.runtime.sleep_until(ports.clock.now().plus(TIME_MAX)) => {}
        }
    }
    response
}

async fn drain(mut body: SharedBody) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > BYTES_MAX {
            return;
        }
    }
}

/// A body that the handler and the drain share.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Shared>>);

struct Shared {
    body: Body,
    /// True if the body was polled, which sends `100 Continue`.
    was_polled: bool,
}

impl SharedBody {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_polled(&self) -> bool {
        self.shared().was_polled
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut shared = self.shared();
        shared.was_polled = true;
        Pin::new(&mut shared.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.shared().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.shared().body.size_hint()
    }
}
